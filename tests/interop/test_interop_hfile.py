"""Goal: Java Hudi's own HFile reader sees every entry of the HFiles that we write, and we of Java's.

Method: entries of many sizes, with keys of 126 bytes and more and beyond U+FFFF, in blocks of all sizes; Java
1.2.0 iterates and seeks. Java up to 1.2 loses entries that begin in the last bytes of a block, as many as
the block has checksum bytes: the blocks of ours end in short entries.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from java_hudi import JavaHudi

from mainstem.formats.hfile import open_hfile
from mainstem.formats.hfile_write import write_hfile

LONG = "é" * 70
KEYS = [*(f"k{n:03}" for n in range(90)), *(f"{LONG}{n}" for n in range(30)), "\uffee", "\U0001f600"]
KEYS.sort(key=str.encode)
VALUES = [bytes([n % 251]) * (n * n % 300 if n % 3 else 0) for n in range(len(KEYS))]
ROWS = [[key, value.hex()] for key, value in zip(KEYS, VALUES, strict=True)]


@pytest.mark.parametrize(("compression", "block_bytes"), [("GZ", 700), ("NONE", 700), ("GZ", 1 << 14)])
def test_java_reads_our_hfiles(java: JavaHudi, tmp_path: Path, compression: str, block_bytes: int) -> None:
    file = tmp_path / "f.hfile"
    values = pa.array(VALUES, pa.binary())
    options = {"schema_text": "{}", "base_file": True, "compression": compression, "block_bytes": block_bytes}
    file.write_bytes(write_hfile(pa.array(KEYS), values, **options))
    wanted = [*KEYS[::5], "nothing"]
    seen = java.call("hfile_rows", path=str(file), keys=sorted(wanted, key=str.encode))
    assert seen["rows"] == ROWS and seen["count"] == len(KEYS)
    assert seen["found"] == {key: dict(ROWS).get(key) for key in wanted}


@pytest.mark.parametrize("codec", ["GZIP", "NONE"])
def test_we_read_java_s_hfiles(java: JavaHudi, tmp_path: Path, codec: str) -> None:
    file = tmp_path / "f.hfile"
    java.call("hfile_write", path=str(file), rows=ROWS, codec=codec, block_bytes=700)
    hfile = open_hfile(file.read_bytes(), path=file.name)
    keys, values = hfile.rows()
    assert keys.cast(pa.string()).to_pylist() == KEYS and values.to_pylist() == VALUES
    assert len(hfile.blocks) > 10
    compression = {"GZIP": "GZ", "NONE": "NONE"}[codec]
    ours = write_hfile(
        keys, values, schema_text=None, base_file=False, compression=compression, block_bytes=700
    )
    assert [block.first for block in open_hfile(ours, path="f").blocks] == [b.first for b in hfile.blocks]
    assert hfile.lookup(pa.array([LONG + "7"]))[1].to_pylist() == [VALUES[KEYS.index(LONG + "7")]]
