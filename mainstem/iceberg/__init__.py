"""Iceberg metadata beside a table's base files, so that engines which know Iceberg read the table.

``publishing`` says step by step what a publication is, ``metadata_versions`` how one becomes visible,
``columns`` what a Hudi column is in Iceberg, ``data_files`` what a base file's footer tells, ``manifests``
how one snapshot follows another, ``after_changes`` when it happens by itself. Formats are pyiceberg's
business (the extra ``iceberg``): manifests, metadata and statistics are written by its public functions.
Nothing here changes the table, and nothing of the table depends on what is here.
"""

#: property of an Iceberg table that mainstem published: the newest time on the timeline that it was made from
SEEN = "mainstem-seen"
