"""Goal: credentials that expire in the middle of a commit, at whichever request, lose nothing and double
nothing; once a tool has renewed them, the same table goes on.

Method: a table on a small S3 server that refuses a key after so many requests of an upsert, with a profile
whose keys are then replaced. It is opened by one scheme and looked at by another.
"""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa

import mainstem
from mainstem.errors import OutcomeUnknown, Unavailable
from tests.servers.small_s3 import Fault, SmallS3

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
# obstore asks a profile at most ten times a second.
_ASKED_AGAIN_S = 0.12


def rows(value: int) -> pa.Table:
    """The same keys with another value."""
    return pa.table({"id": ["a", "b"], "v": [value, value]}, schema=SCHEMA)


class Expiring(SmallS3):
    """Refuses ``key`` after ``left`` further requests."""

    key, left = "", -1

    def fault(self, method: str, key: str) -> Fault | None:
        """Count the request."""
        with self.mutex:
            self.left -= 1
            if self.left == 0:
                self.refused_keys.add(self.key)
        return super().fault(method, key)


def test_an_upsert_whose_credentials_expire_is_whole_or_nothing(tmp_path: Path, monkeypatch) -> None:
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(credentials))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)

    def renew(key: str) -> None:
        credentials.write_text(f"[default]\naws_access_key_id={key}\naws_secret_access_key=s\n")
        time.sleep(_ASKED_AGAIN_S)

    renew("FIRST")
    with Expiring() as server:
        options = {
            "fs.s3a.endpoint": server.endpoint, "hoodie.mainstem.storage.retries": "2",
            "hoodie.mainstem.exclusive": "true",
        }  # fmt: skip
        table = mainstem.create_table(
            "s3a://bucket/t", SCHEMA, record_key="id", ordering="v", buckets=1, properties=options
        )
        table.upsert(rows(1))
        seen, refused = 1, 0
        for number in range(1, 12):
            key = f"KEY{number}"
            renew(key)
            server.key, server.left = key, number
            value, said = number * 10, None
            try:
                table.upsert(rows(value))
            except (Unavailable, OutcomeUnknown) as error:
                refused += 1
                said = error
                assert "What to do: " in str(error)  # a HEAD gives no reason
            server.left = -1
            renew(f"NEXT{number}")
            now = mainstem.open_table("s3://bucket/t", properties=options).scan().to_arrow()
            found = set(now.column("v").to_pylist())
            assert len(found) == 1 and now.num_rows == 2
            expected = {value} if said is None else {seen}
            assert found == expected or (isinstance(said, OutcomeUnknown) and found == {value}), number
            seen = found.pop()
        assert refused >= 8
        table.upsert(rows(1_000))
        assert table.scan().to_arrow().column("v").to_pylist() == [1_000, 1_000]
