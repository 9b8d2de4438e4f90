"""Bytes to columns and back: Avro schemas and records, log files, base files, HFiles, properties.

Nothing here opens a file by its path or knows the timeline. Damaged input raises ``CorruptTable`` and
nothing else; ``mainstem.limits`` has the bounds.
"""
