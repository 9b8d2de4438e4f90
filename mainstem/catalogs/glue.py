"""AWS Glue's Data Catalog, by boto3, as ``AWSGlueCatalogSyncClient`` of Hudi uses it.

Credentials and region are found as boto3 finds them; ``AWS_ENDPOINT_URL_GLUE`` names another server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mainstem.catalogs.protocol import Column, Entry, Part
from mainstem.errors import Invalid, Unavailable, Unsupported

SCHEME = "glue:"
# What Glue takes in one request.
_CREATED_MAX, _DELETED_MAX = 100, 25
_LISTING = "hudi.metadata-listing-enabled"
_THERE, _GONE = "AlreadyExistsException", "EntityNotFoundException"
_MINE = ("InvalidInputException", "ResourceNumberLimitExceededException", _GONE, _THERE)
# Of what Glue tells of a table, what an update may say.
_INPUT = (
    "Name", "Description", "Owner", "LastAccessTime", "LastAnalyzedTime", "Retention", "StorageDescriptor",
    "PartitionKeys", "ViewOriginalText", "ViewExpandedText", "TableType", "Parameters", "TargetTable",
)  # fmt: skip
_S3A = re.compile(r"^s3[an](?=:)", re.IGNORECASE)


@dataclass(frozen=True)
class Glue:
    """``region``: "" for boto3's own. ``listing`` and ``skip_archive`` are Hudi's options of the same
    name."""

    region: str = ""
    listing: bool = False
    skip_archive: bool = True
    keeps_entries = True
    of_iceberg = False

    @property
    def place(self) -> str:
        return f"{SCHEME}//{self.region}" if self.region else SCHEME

    @contextmanager
    def _client(self, doing: str) -> Iterator[Any]:
        boto3, errors = _boto3()
        try:
            yield boto3.client("glue", **({"region_name": self.region} if self.region else {}))
        except errors.ClientError as error:
            code, text = _code(error), str(error)[:500]
            kind = Invalid if code in _MINE else Unavailable
            raise kind(f"Glue refuses ({doing}): {text}") from error
        except errors.ParamValidationError as error:
            raise Invalid(f"Glue does not take it ({doing}): {str(error)[:500]}") from error
        except (errors.BotoCoreError, OSError) as error:
            raise Unavailable(
                f"Glue does not answer ({doing}): {str(error)[:500]}; look at region and credentials"
            ) from error

    def databases(self) -> list[str]:
        with self._client("listing databases") as client:
            pages = client.get_paginator("get_databases").paginate()
            return sorted(one["Name"] for page in pages for one in page["DatabaseList"])

    def has_database(self, database: str) -> bool:
        with self._client(f"asking for the database {database}") as client:
            return _found(lambda: client.get_database(Name=database)) is not None

    def create_database(self, database: str, comment: str) -> bool:
        with self._client(f"making the database {database}") as client:
            made = {"Name": database, "Description": comment, "Parameters": {}}
            return _unless(_THERE, lambda: client.create_database(DatabaseInput=made))

    def drop_database(self, database: str) -> bool:
        if self.has_database(database) and self.tables(database):
            raise Invalid(f"the database {database} of Glue is not empty; drop its tables first")
        with self._client(f"dropping the database {database}") as client:
            return _unless(_GONE, lambda: client.delete_database(Name=database))

    def table_location(self, database: str, name: str) -> str:
        with self._client(f"asking for the database {database}") as client:
            where = client.get_database(Name=database)["Database"].get("LocationUri", "")
        if not where:
            raise Invalid(
                f"the database {database} of Glue has no location: say where the table shall lie, location="
            )
        return f"{where.rstrip('/')}/{name}"

    def tables(self, database: str) -> list[str]:
        with self._client(f"listing the tables of {database}") as client:
            pages = client.get_paginator("get_tables").paginate(DatabaseName=database)
            return sorted(one["Name"] for page in pages for one in page["TableList"])

    def entry(self, database: str, name: str) -> Entry | None:
        with self._client(f"asking for {database}.{name}") as client:
            found = _found(lambda: client.get_table(DatabaseName=database, Name=name))
        return None if found is None else _entry(found["Table"])

    def create(self, entry: Entry) -> bool:
        made = {
            "Name": entry.name, "TableType": entry.kind, "Parameters": self._parameters(entry.parameters),
            "PartitionKeys": _columns(entry.partition_columns), "StorageDescriptor": _storage(entry),
        }  # fmt: skip
        with self._client(f"registering {entry.full_name}") as client:
            return _unless(_THERE, lambda: client.create_table(DatabaseName=entry.database, TableInput=made))

    def alter(self, entry: Entry, *, cascade: bool) -> None:
        kept = {key: value for key, value in entry.found.items() if key in _INPUT}
        storage = {**kept.get("StorageDescriptor", {}), **_storage(entry)}
        made = {**kept, "Parameters": self._parameters(entry.parameters), "StorageDescriptor": storage}
        with self._client(f"changing {entry.full_name}") as client:
            client.update_table(DatabaseName=entry.database, TableInput=made, SkipArchive=self.skip_archive)
        if cascade:
            self.move_partitions(entry, self.partitions(entry))

    def _parameters(self, given: Mapping[str, str]) -> dict[str, str]:
        return {**given, _LISTING: str(self.listing).upper()}

    def drop(self, database: str, name: str) -> bool:
        with self._client(f"dropping {database}.{name}") as client:
            return _unless(_GONE, lambda: client.delete_table(DatabaseName=database, Name=name))

    def partitions(self, entry: Entry) -> list[Part]:
        with self._client(f"listing the partitions of {entry.full_name}") as client:
            pages = client.get_paginator("get_partitions").paginate(
                DatabaseName=entry.database, TableName=entry.name
            )
            return [
                Part(tuple(one["Values"]), one.get("StorageDescriptor", {}).get("Location", ""))
                for page in pages for one in page["Partitions"]
            ]  # fmt: skip

    def add_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        with self._client(f"adding partitions to {entry.full_name}") as client:
            for at in range(0, len(parts), _CREATED_MAX):
                made = [_partition(entry, part) for part in parts[at : at + _CREATED_MAX]]
                answer = client.batch_create_partition(
                    DatabaseName=entry.database, TableName=entry.name, PartitionInputList=made
                )
                _check(answer, _THERE, f"adding partitions to {entry.full_name}")

    def move_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        with self._client(f"changing partitions of {entry.full_name}") as client:
            for at in range(0, len(parts), _CREATED_MAX):
                made = [
                    {"PartitionValueList": list(part.values), "PartitionInput": _partition(entry, part)}
                    for part in parts[at : at + _CREATED_MAX]
                ]
                answer = client.batch_update_partition(
                    DatabaseName=entry.database, TableName=entry.name, Entries=made
                )
                _check(answer, "", f"changing partitions of {entry.full_name}")

    def drop_partitions(self, entry: Entry, parts: Sequence[Part]) -> None:
        with self._client(f"dropping partitions of {entry.full_name}") as client:
            for at in range(0, len(parts), _DELETED_MAX):
                gone = [{"Values": list(part.values)} for part in parts[at : at + _DELETED_MAX]]
                answer = client.batch_delete_partition(
                    DatabaseName=entry.database, TableName=entry.name, PartitionsToDelete=gone
                )
                _check(answer, _GONE, f"dropping partitions of {entry.full_name}")


def _boto3() -> tuple[Any, Any]:
    try:
        import boto3
        from botocore import exceptions
    except ImportError as error:
        raise Unsupported("Glue needs boto3, which is not installed: pip install 'mainstem[glue]'") from error
    return boto3, exceptions


def _code(error: Any) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _found(ask: Any) -> Any:
    """The answer, None for what is not there."""
    _, errors = _boto3()
    try:
        return ask()
    except errors.ClientError as error:
        if _code(error) == _GONE:
            return None
        raise


def _unless(code: str, do: Any) -> bool:
    """Does it; False where Glue answers with ``code``."""
    _, errors = _boto3()
    try:
        do()
    except errors.ClientError as error:
        if _code(error) == code:
            return False
        raise
    return True


def _check(answer: Mapping[str, Any], expected: str, doing: str) -> None:
    """Raises ``Unavailable`` for failures of single partitions, but for what another process did
    meanwhile."""
    failed = [one.get("ErrorDetail", {}) for one in answer.get("Errors", ())]
    other = [detail for detail in failed if detail.get("ErrorCode") != expected]
    if other:
        raise Unavailable(f"Glue failed ({doing}): {str(other[0])[:300]}; sync again")


def _columns(columns: Sequence[Column]) -> list[dict[str, str]]:
    return [{"Name": name, "Type": kind, "Comment": ""} for name, kind in columns]


def _spelt(place: str) -> str:
    """Glue and Athena know ``s3`` alone (Hudi's ``s3aToS3``)."""
    return _S3A.sub("s3", place)


def _storage(entry: Entry) -> dict[str, Any]:
    serde = {"SerializationLibrary": entry.serde, "Parameters": dict(entry.serde_parameters)}
    return {
        "Columns": _columns(entry.columns), "Location": _spelt(entry.location), "InputFormat":
        entry.input_format, "OutputFormat": entry.output_format, "SerdeInfo": serde,
    }  # fmt: skip


def _partition(entry: Entry, part: Part) -> dict[str, Any]:
    return {
        "Values": list(part.values), "StorageDescriptor": {**_storage(entry), "Location":
        _spelt(part.location)}
    }  # fmt: skip


def _entry(table: Mapping[str, Any]) -> Entry:
    storage = table.get("StorageDescriptor", {})
    serde = storage.get("SerdeInfo", {})
    return Entry(
        table.get("DatabaseName", ""), table.get("Name", ""), storage.get("Location", ""),
        tuple((c["Name"], c.get("Type", "")) for c in storage.get("Columns", ())),
        tuple((c["Name"], c.get("Type", "")) for c in table.get("PartitionKeys", ())),
        dict(table.get("Parameters", {})), dict(serde.get("Parameters", {})),
        serde.get("SerializationLibrary", ""), storage.get("InputFormat", ""), storage.get("OutputFormat",
        ""), table.get("TableType", ""), table,
    )  # fmt: skip
