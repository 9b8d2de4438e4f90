"""Bytes to columns and back: Avro schemas and records, log files, containers, properties.

Nothing in here opens a file or knows the timeline; input is text, bytes or memory views, output is
Arrow. Damaged input raises ``CorruptTable`` and nothing else; see ``mainstem.limits`` for the
bounds.
"""
