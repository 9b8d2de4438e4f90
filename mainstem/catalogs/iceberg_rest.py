"""An Iceberg REST catalog, by pyiceberg's client: it holds the Iceberg side of tables, for every engine.

An entry is a name and a version of Iceberg's metadata (``iceberg.publishing``), so registering and refreshing
publish first. ``rest:http://host:8181``, with ``?warehouse=NAME`` where the server has several. Credentials
are found as pyiceberg finds them for a catalog ``mainstem``: ``PYICEBERG_CATALOG__MAINSTEM__TOKEN``,
``..__CREDENTIAL``, or ``~/.pyiceberg.yaml``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from mainstem.catalogs.entries import LAST_COMPLETION, PROVIDER
from mainstem.catalogs.protocol import Column, Entry, WithoutPartitions
from mainstem.errors import Invalid, Unavailable, Unsupported
from mainstem.iceberg import SEEN

SCHEME = "rest:"
#: of an entry: location of the version of Iceberg's metadata that the name stands for
METADATA = "metadata_location"
_CONFIGURED = "mainstem"


def check_rest_place(place: str) -> None:
    """Raises ``Invalid`` for text that names no REST catalog, or holds credentials."""
    found = urlsplit(place.removeprefix(SCHEME))
    if found.scheme not in ("http", "https") or not found.netloc:
        raise Invalid(f"{place[:200]!r}: expected rest:http://host:port, or rest:https://host?warehouse=NAME")
    if "@" in found.netloc or set(parse_qs(found.query)) - {"warehouse"} or found.fragment:
        raise Invalid(
            f"{SCHEME}{found.scheme}://{found.hostname}: credentials and options do not belong into a"
            " catalog's name; only warehouse= may be given there, others as"
            f" PYICEBERG_CATALOG__{_CONFIGURED.upper()}__..."
        )


@dataclass(frozen=True)
class IcebergRest(WithoutPartitions):
    """``place``: as in the module's text."""

    place: str
    keeps_entries = True
    of_iceberg = True

    @contextmanager
    def _client(self, doing: str) -> Iterator[Any]:
        try:
            from pyiceberg import exceptions
            from pyiceberg.catalog import load_catalog
        except ImportError as error:
            raise Unsupported(
                f"a REST catalog is spoken to by pyiceberg, which cannot be used ({error}): pip install"
                " 'mainstem[iceberg]'"
            ) from error
        found = urlsplit(self.place.removeprefix(SCHEME))
        warehouse = parse_qs(found.query).get("warehouse")
        options = {"type": "rest", "uri": f"{found.scheme}://{found.netloc}{found.path}".rstrip("/")}
        if warehouse:
            options["warehouse"] = warehouse[0]
        refusals = (
            exceptions.BadRequestError, exceptions.ForbiddenError, exceptions.UnauthorizedError,
            exceptions.NoSuchNamespaceError, exceptions.NamespaceNotEmptyError,
        )  # fmt: skip
        try:
            yield load_catalog(_CONFIGURED, **options)
        except refusals as error:
            raise Invalid(f"{self.place} refuses ({doing}): {str(error)[:500]}") from error
        except (exceptions.RESTError, NotImplementedError, OSError) as error:
            raise Unavailable(
                f"{self.place} does not answer as a REST catalog does ({doing}): {str(error)[:500]}; look at"
                " the address and at the server"
            ) from error

    def databases(self) -> list[str]:
        with self._client("listing namespaces") as client:
            return sorted(".".join(found) for found in client.list_namespaces())

    def has_database(self, database: str) -> bool:
        with self._client(f"asking for the namespace {database}") as client:
            return bool(client.namespace_exists(database))

    def create_database(self, database: str, comment: str) -> bool:
        from pyiceberg.exceptions import NamespaceAlreadyExistsError

        with self._client(f"making the namespace {database}") as client:
            try:
                client.create_namespace(database, {"comment": comment} if comment else {})
            except NamespaceAlreadyExistsError:
                return False
            return True

    def drop_database(self, database: str) -> bool:
        from pyiceberg.exceptions import NamespaceNotEmptyError, NoSuchNamespaceError

        with self._client(f"dropping the namespace {database}") as client:
            try:
                client.drop_namespace(database)
            except NoSuchNamespaceError:
                return False
            except NamespaceNotEmptyError as error:
                raise Invalid(
                    f"the database {database} of {self.place} is not empty; drop its tables first"
                ) from error
            return True

    def tables(self, database: str) -> list[str]:
        with self._client(f"listing the tables of {database}") as client:
            return sorted(found[-1] for found in client.list_tables(database))

    def table_location(self, database: str, name: str) -> str:
        with self._client(f"asking for the namespace {database}") as client:
            where = client.load_namespace_properties(database).get("location", "")
        if not where:
            raise Invalid(
                f"the database {database} of {self.place} has no location: say where the table shall lie,"
                " location="
            )
        return f"{where.rstrip('/')}/{name}"

    def entry(self, database: str, name: str) -> Entry | None:
        from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

        with self._client(f"asking for {database}.{name}") as client:
            try:
                found = client.load_table((database, name))
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
        schema, told = found.metadata.schema(), found.metadata.properties
        columns: list[Column] = [(field.name, str(field.field_type)) for field in schema.fields]
        parts = [schema.find_field(part.source_id).name for part in found.metadata.spec().fields]
        parameters = {METADATA: found.metadata_location, "table_type": "ICEBERG"}
        if SEEN in told:
            parameters = {METADATA: found.metadata_location, PROVIDER: "hudi", LAST_COMPLETION: told[SEEN]}
        return Entry(
            database, name, found.metadata.location, tuple(one for one in columns if one[0] not in parts),
            tuple(one for one in columns if one[0] in parts), parameters, found=found.metadata_location,
        )  # fmt: skip

    def create(self, entry: Entry) -> bool:
        from pyiceberg.exceptions import TableAlreadyExistsError

        with self._client(f"registering {entry.full_name}") as client:
            try:
                client.register_table((entry.database, entry.name), entry.parameters[METADATA])
            except TableAlreadyExistsError:
                return False
            return True

    def alter(self, entry: Entry, *, cascade: bool) -> None:
        """Lets the name stand for another version. Where the server cannot do so in one step, the name is
        away for a moment."""
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        name, metadata = (entry.database, entry.name), entry.parameters[METADATA]
        with self._client(f"refreshing {entry.full_name}") as client:
            try:
                client.register_table(name, metadata, overwrite=True)
            except TableAlreadyExistsError:
                with suppress(NoSuchTableError):
                    client.drop_table(name)
                try:
                    client.register_table(name, metadata)
                except TableAlreadyExistsError as error:
                    raise Unavailable(
                        f"another process refreshed {entry.full_name} meanwhile; try again"
                    ) from error

    def drop(self, database: str, name: str) -> bool:
        from pyiceberg.exceptions import NoSuchTableError

        with self._client(f"dropping {database}.{name}") as client:
            try:
                client.drop_table((database, name))
            except NoSuchTableError:
                return False
            return True
