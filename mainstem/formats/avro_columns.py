"""Framed Avro records to Arrow columns and back: the one import for the content of AVRO_DATA log blocks."""

from mainstem.formats.avro_decode import decode_many, decode_records
from mainstem.formats.avro_encode import encode_groups, encode_records

__all__ = ["decode_many", "decode_records", "encode_groups", "encode_records"]
