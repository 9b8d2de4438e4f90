"""Tables by name: what a catalog holds about a Hudi table, and how it is kept true.

``protocol`` says what a catalog can do; ``folder``, ``hive_metastore`` and ``glue`` are the kinds. An entry
is what Hudi's own sync registers (``entries``), and ``synchronising`` brings it up to the table. Nothing here
opens, makes or deletes tables (``api.catalog`` does), and nothing that an entry says is believed: it names a
place, which is looked at (``belief``).
"""
