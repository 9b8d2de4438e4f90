"""What users say of an object store, as obstore takes it.

``split`` takes the options of stores out of those of a table; ``settled`` keeps the ones that a location
needs; ``open_store`` makes the store. What is not given stands in Hadoop's files (``hadoop_files``) or in
a profile (``aws_credentials``), or obstore takes it from the environment (``AWS_*``, ``GOOGLE_*``,
``AZURE_*``), an instance's or a container's role, or a web identity.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlsplit

from mainstem.errors import Invalid, Unsupported
from mainstem.forks import Mutex
from mainstem.options import stores
from mainstem.options.declaration import Option, every_option
from mainstem.storage.hadoop_files import by_variable, hadoop_options
from mainstem.storage.hdfs_options import is_of_hdfs
from mainstem.storage.location import Location
from mainstem.storage.memory_store import memory_store

if TYPE_CHECKING:
    from mainstem.storage.local_cache import LocalCache

S3, GCS, AZURE, MEMORY = "s3", "gs", "az", "memory"
#: scheme -> the kind of store
KINDS = {
    "s3": S3, "s3a": S3, "s3n": S3, "gs": GCS, "az": AZURE, "abfs": AZURE, "abfss": AZURE, "wasb": AZURE,
    "wasbs": AZURE, "memory": MEMORY,
}  # fmt: skip
_EXTRAS = {S3: "s3", GCS: "gcs", AZURE: "azure", MEMORY: "cloud"}
_BY_VARIABLE = "env:"
_ANONYMOUS_PROVIDER = "AnonymousAWSCredentialsProvider"
_ENCRYPTIONS = {
    "AES256": "AES256", "SSE-S3": "AES256", "SSE-KMS": "aws:kms", "DSSE-KMS": "aws:kms:dsse", "SSE-C": "sse-c"
}  # fmt: skip
_STORAGE_CLASSES = ("STANDARD", "INTELLIGENT_TIERING", "STANDARD_IA", "ONEZONE_IA")
_ADDRESS = re.compile(r"[\d.]+|.*:.*")
_AZURE_HOSTS = "core.windows.net"
#: variables by which obstore finds the server
_ENDPOINT_VARIABLES = {
    S3: ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    GCS: ("GOOGLE_BASE_URL",),
    AZURE: ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    MEMORY: (),
}
# What obstore reads of the environment decides which store it is.
_VARIABLES = ("HOME", "AWS_", "GOOGLE_", "AZURE_", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")

#: options that say one thing together: whoever says one of them says all, and takes none from elsewhere
_TOGETHER: tuple[frozenset[Option], ...] = (
    frozenset((stores.ENDPOINT, stores.S3_ENDPOINT, stores.GCS_ENDPOINT, stores.S3_TLS)),
    frozenset(stores.WHO),
    frozenset((stores.S3_ENCRYPTION, stores.S3_ENCRYPTION_KEY)),
    frozenset((stores.PROXY, stores.GCS_PROXY, stores.S3_PROXY_HOST, stores.S3_PROXY_PORT,
               stores.S3_PROXY_USER, stores.S3_PROXY_PASSWORD)),
)  # fmt: skip

_OPTIONS: dict[str, Option] = {
    name: option
    for option in every_option()
    if option.read_by == stores.S3_ENDPOINT.read_by
    for name in option.names
}


class Settled(NamedTuple):
    """What a location keeps: options, names of variables that hold secrets, and secrets given as text."""

    options: tuple[tuple[str, str], ...]
    variables: tuple[tuple[str, str], ...]
    texts: tuple[tuple[str, str], ...]


def is_of_store(name: str) -> bool:
    """Whether an option belongs to a store, by its prefix."""
    return name.startswith(stores.PREFIXES) or is_of_hdfs(name)


def split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """(options of stores, all others)."""
    of_store = {name: text for name, text in given.items() if is_of_store(name)}
    return of_store, {name: text for name, text in given.items() if name not in of_store}


def check_names(given: Mapping[str, str]) -> None:
    """Raises ``Invalid`` for an unknown option of ours."""
    own = stores.ENDPOINT.rpartition(".")[0]
    for name in given:
        if name.startswith(own) and name not in _OPTIONS:
            known = sorted(option for option in _OPTIONS if option.startswith(own))
            raise Invalid(f"unknown option {name!r}; known are {', '.join(known)}")


def given_again(location: Location) -> dict[str, str]:
    """The options that a location keeps, as they could be given."""
    variables = {name: f"{_BY_VARIABLE}{variable}" for name, variable in location.secrets}
    return {**dict(location.options), **dict(location.texts), **variables}


def settled(
    location: Location, given: Mapping[str, str], below: Mapping[str, str] = MappingProxyType({})
) -> Settled:
    """Check the options of stores and keep them, by the names of their declarations.

    Options for one bucket (``fs.s3a.bucket.NAME.*``) count before those for all, and only for it; those for
    another Azure account are left out. ``below``: options that count where ``given`` says nothing. Warns of
    given options without effect. Raises ``Invalid`` for a wrong value.
    """
    found, unknown = _chosen(location, given)
    if unknown:
        warnings.warn(
            f"these options of stores have no effect in mainstem: {', '.join(sorted(unknown))}", stacklevel=4
        )
    texts, variables, options = [], [], []
    for option, text in sorted(_over(found, _chosen(location, below)[0]).items()):
        if text.startswith(_BY_VARIABLE):
            variables.append((str(option), text.removeprefix(_BY_VARIABLE)))
        elif option in stores.SECRETS:
            texts.append((str(option), text))
        else:
            options.append((str(option), text))
    kept = Settled(tuple(options), tuple(variables), tuple(texts))
    _configured(location, dict(kept.options))
    return kept


def _chosen(location: Location, given: Mapping[str, str]) -> tuple[dict[Option, str], list[str]]:
    """What options say here, and the names that are unknown."""
    found: dict[Option, str] = {}
    unknown = []
    rank: dict[Option, int] = {}
    for name, text in given.items():
        option, weight = _meant(location, name)
        if option is None:
            if weight:
                unknown.append(name)
        elif weight > rank.get(option, 0):
            found[option], rank[option] = by_variable(text.strip()), weight
    return found, unknown


def _over(upper: Mapping[Option, str], lower: Mapping[Option, str]) -> dict[Option, str]:
    """Both, the upper ones first: no key of one with the secret of the other."""
    said = frozenset(upper).union(*(group for group in _TOGETHER if not group.isdisjoint(upper)))
    return {**{option: text for option, text in lower.items() if option not in said}, **upper}


def _values(location: Location) -> dict[str, str]:
    """All options of a location with their values, and those of this process's Hadoop files."""
    values = location.option_values()
    below = hadoop_options()
    if not below:
        return values
    given = {_OPTIONS[name]: text for name, text in values.items()}
    both = _over(given, _chosen(location, below)[0])
    secrets = {
        str(option): text.removeprefix(_BY_VARIABLE)
        for option, text in both.items()
        if option not in given and text.startswith(_BY_VARIABLE)
    }
    found = replace(location, options=(), texts=(), secrets=tuple(secrets.items())).option_values()
    return {**{str(option): text for option, text in both.items()}, **found}


def _meant(location: Location, name: str) -> tuple[Option | None, int]:
    """The option that a name means here, and how much it counts: older names less, those for this bucket or
    account more. (None, 0): it is about another bucket or account; (None, 1): unknown."""
    more = 0
    if name.startswith(stores.PER_BUCKET):
        own = f"{stores.PER_BUCKET}{location.authority}."
        if not name.startswith(own):
            return None, 0
        name, more = stores.S3A + name.removeprefix(own), 10
    option = _OPTIONS.get(name)
    if option is not None:
        return option, more + 9 - option.names.index(name)
    for option in stores.PER_ACCOUNT:
        if name.startswith(f"{option}."):
            account = name.removeprefix(f"{option}.").partition(".")[0]
            mine = account == _azure(location)[0]
            return (option, 20) if mine else (None, 0)
    return None, 1


def _azure(location: Location) -> tuple[str, str, str]:
    """Account, container and endpoint that a URL names; "" for what it does not name."""
    container, at, host = location.authority.partition("@")
    if not at:
        return "", container, ""
    account, _, rest = host.partition(".")
    kind, _, domain = rest.partition(".")
    other = kind in ("dfs", "blob") and domain and domain != _AZURE_HOSTS
    return account, container, f"https://{account}.blob.{domain}" if other else ""


# -- making the store ----------------------------------------------------------------------------------


def _configured(location: Location, values: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """obstore's configuration of the store, and of its HTTP client."""
    client: dict[str, Any] = {
        "timeout": timedelta(milliseconds=stores.TIMEOUT_MS.read(values)),
        "connect_timeout": timedelta(milliseconds=stores.CONNECT_TIMEOUT_MS.read(values)),
    }
    if proxy := stores.PROXY.read(values):
        client["proxy_url"] = proxy
    kind = KINDS[location.scheme]
    config: dict[str, Any] = {}
    if stores.ANONYMOUS.read(values):
        config["skip_signature"] = True
    if kind == S3:
        _configure_s3(location, values, config, client)
    elif kind == GCS:
        _copy(values, config, {stores.GCS_KEY_FILE: "service_account", stores.GCS_ENDPOINT: "base_url"})
        if address := stores.GCS_PROXY.read(values):
            client.setdefault("proxy_url", address if "://" in address else f"http://{address}")
        config.setdefault("base_url", stores.ENDPOINT.read(values))
        _allow_http(config["base_url"], client)
    elif kind == AZURE:
        _configure_azure(location, values, config, client)
    for variable in _ENDPOINT_VARIABLES[kind]:
        _allow_http(os.environ.get(variable, "") if not _endpoint(config) else "", client)
    _check_endpoint(_endpoint(config), location)
    return {name: value for name, value in config.items() if value not in ("", None)}, client


def _endpoint(config: Mapping[str, Any]) -> str:
    return str(config.get("endpoint", "") or config.get("base_url", ""))


def _check_endpoint(endpoint: str, location: Location) -> None:
    """Raises ``Invalid``, which does not repeat it, as it may hold a password or a signature."""
    url = urlsplit(endpoint)
    try:
        ok = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # of a port that is no number
        ok = False
    if "@" in url.netloc or url.query:
        raise Invalid(
            "the store's endpoint holds a user or a query: give credentials by options or the environment",
            table=location.base,
        )
    if endpoint and not ok:
        raise Invalid("the store's endpoint is no URL http(s)://HOST[:PORT]", table=location.base)


def _copy(values: Mapping[str, str], config: dict[str, Any], names: Mapping[Any, str]) -> None:
    for option, name in names.items():
        if text := option.read(values):
            config[name] = text


def _allow_http(endpoint: str, client: dict[str, Any]) -> None:
    if endpoint.startswith("http://"):  # it was asked for by name
        client["allow_http"] = True


def _configure_s3(
    location: Location, values: Mapping[str, str], config: dict[str, Any], client: dict[str, Any]
) -> None:
    _copy(
        values,
        config,
        {
            stores.S3_REGION: "region",
            stores.S3_ROLE: "role_arn",
        },
    )
    endpoint = stores.S3_ENDPOINT.read(values) or stores.ENDPOINT.read(values)
    tls, path_style = stores.S3_TLS.read(values), stores.S3_PATH_STYLE.read(values)
    if endpoint:
        if "://" not in endpoint:
            endpoint = f"{'https' if tls else 'http'}://{endpoint}"
        if not path_style:
            url = urlsplit(endpoint)
            if _ADDRESS.fullmatch(url.hostname or ""):
                raise Invalid(
                    f"{stores.S3_PATH_STYLE}=false: a bucket cannot stand before an address of numbers; give"
                    " the server's name, or leave the option out",
                    table=location.base,
                )
            endpoint = f"{url.scheme}://{location.authority}.{url.netloc}"
            config["virtual_hosted_style_request"] = True
        config["endpoint"] = endpoint
        if os.environ.get(_ENDPOINT_VARIABLES[S3][0]):  # obstore would prefer it to what is given
            config["aws_endpoint_url_s3"] = endpoint
    _allow_http(endpoint, client)
    if _ANONYMOUS_PROVIDER in stores.S3_PROVIDER.read(values):
        config["skip_signature"] = True
    if stores.S3_REQUESTER_PAYS.read(values):
        config["request_payer"] = True
    if algorithm := stores.S3_ENCRYPTION.read(values):
        if algorithm not in _ENCRYPTIONS:
            raise Unsupported(
                f"{stores.S3_ENCRYPTION}={algorithm!r}: expected {', '.join(_ENCRYPTIONS)}",
                table=location.base,
            )
        config["server_side_encryption"] = _ENCRYPTIONS[algorithm]
        own_key = "sse_customer_key_base64" if algorithm == "SSE-C" else "sse_kms_key_id"
        _copy(values, config, {stores.S3_ENCRYPTION_KEY: own_key})
    attributes(location, values)
    if host := stores.S3_PROXY_HOST.read(values):
        client.setdefault(
            "proxy_url", f"http://{_proxy_user(values)}{host}:{stores.S3_PROXY_PORT.read(values)}"
        )


def _proxy_user(values: Mapping[str, str]) -> str:
    user, password = stores.S3_PROXY_USER.read(values), stores.S3_PROXY_PASSWORD.read(values)
    return f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""


def _configure_azure(
    location: Location, values: Mapping[str, str], config: dict[str, Any], client: dict[str, Any]
) -> None:
    account, _, endpoint = _azure(location)
    config["account_name"] = account
    _copy(
        values,
        config,
        {
            stores.AZURE_KEY: "account_key",
            stores.AZURE_SAS: "sas_key",
            stores.AZURE_CLIENT: "client_id",
            stores.AZURE_CLIENT_SECRET: "client_secret",
        },
    )
    if login := stores.AZURE_LOGIN.read(values):
        url = urlsplit(login)
        config["tenant_id"] = url.path.strip("/").partition("/")[0]
        config["authority_host"] = f"{url.scheme}://{url.netloc}"
    config["endpoint"] = stores.ENDPOINT.read(values) or endpoint
    _allow_http(config["endpoint"], client)


_stores: dict[tuple[object, ...], Any] = {}
_stores_guard = Mutex()
_STORES_MAX = 64


def open_store(location: Location) -> Any:
    """The store of obstore's that holds ``location``; the tables of a bucket share it and its connections.

    Raises ``Unsupported`` where obstore is not installed, ``Invalid`` for settings that it refuses and for a
    secret that this process lacks.
    """
    kind = KINDS[location.scheme]
    try:
        import obstore.store
    except ImportError as error:
        raise Unsupported(
            f"{location.scheme}:// needs the library obstore: pip install 'mainstem[{_EXTRAS[kind]}]'",
            table=location.base,
        ) from error
    if kind == MEMORY:
        return memory_store(location.authority)
    values = _values(location)
    told = tuple(sorted((k, v) for k, v in os.environ.items() if k.startswith(_VARIABLES)))
    key = (kind, location.authority, tuple(sorted(values.items())), told)
    with _stores_guard.held:
        made = _stores.get(key)
        if made is None:
            while len(_stores) >= _STORES_MAX:
                del _stores[next(iter(_stores))]
            made = _stores[key] = _made(obstore.store, kind, location, values)
    return made


def _made(library: Any, kind: str, location: Location, values: Mapping[str, str]) -> Any:
    config, client = _configured(location, values)
    more: dict[str, Any] = {}
    if kind == S3:
        config["copy_if_not_exists"] = "multipart"  # a copy whose completion has the condition
    if kind == S3 and not config.get("skip_signature"):
        from mainstem.storage import aws_credentials

        who = aws_credentials.identity(values, location.base)
        if who.provider is not None:
            more["credential_provider"] = who.provider
        if who.region and not _told("region", config, "AWS_REGION", "AWS_DEFAULT_REGION"):
            config["region"] = who.region
        if who.endpoint and not _told("endpoint", config, *_ENDPOINT_VARIABLES[S3]):
            _check_endpoint(who.endpoint, location)
            config["endpoint"] = who.endpoint
            _allow_http(who.endpoint, client)
    ca_file = stores.CA_FILE.read(values) or (os.environ.get("AWS_CA_BUNDLE", "") if kind == S3 else "")
    if ca_file:
        try:
            with open(ca_file, encoding="ascii") as file:
                client["root_certificate"] = file.read()
        except OSError as error:
            raise Invalid(f"{stores.CA_FILE}={ca_file!r}: {error}", table=location.base) from error
    retries = {
        "max_retries": stores.STORE_RETRIES.read(values),
        "retry_timeout": timedelta(milliseconds=stores.RETRY_TIMEOUT_MS.read(values)),
    }
    try:
        if kind == S3:
            return library.S3Store(
                location.authority, config=config, client_options=client, retry_config=retries, **more
            )
        if kind == GCS:
            return library.GCSStore(
                location.authority, config=config, client_options=client, retry_config=retries
            )
        return library.AzureStore(
            _azure(location)[1], config=config, client_options=client, retry_config=retries
        )
    except Exception as error:  # obstore's errors, ValueError, TypeError: settings that it does not take
        said = str(error).partition("\n")[0]
        for _, text in location.texts:
            said = said.replace(text, "...") if text else said
        if "Account must be specified" in said:
            said = (
                f"the URL names no account: give it as {location.scheme}://CONTAINER@ACCOUNT"
                f".dfs.{_AZURE_HOSTS}/PATH, or by the variable AZURE_STORAGE_ACCOUNT_NAME"
            )
        raise Invalid(f"the settings of the store are refused: {said}", table=location.base) from None


def _told(name: str, config: Mapping[str, Any], *variables: str) -> bool:
    return name in config or any(os.environ.get(variable) for variable in variables)


def width(location: Location) -> int:
    """The number of concurrent requests."""
    return stores.STORE_WIDTH.read(dict(location.options))


def attributes(location: Location, values: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is said of every object that is put. Raises ``Unsupported`` for a class that cannot be read."""
    found = stores.S3_STORAGE_CLASS.read(dict(location.options) if values is None else values).upper()
    if not found or KINDS.get(location.scheme) != S3:
        return {}
    if found not in _STORAGE_CLASSES:
        raise Unsupported(
            f"{stores.S3_STORAGE_CLASS}={found!r}: expected {', '.join(_STORAGE_CLASSES)}",
            table=location.base,
        )
    return {"Storage-Class": found}


def kept_bytes(location: Location) -> int:
    """How much of files that never change again is kept in memory."""
    return stores.KEPT_BYTES.read(dict(location.options))


def cache(location: Location) -> LocalCache | None:
    """Where copies of large files are kept on this machine; None if none are."""
    values = dict(location.options)
    bytes_max = stores.CACHE_BYTES.read(values)
    folder = stores.CACHE_FOLDER.read(values)
    if not bytes_max or (KINDS[location.scheme] == MEMORY and not folder):
        return None
    from mainstem.storage.local_cache import LocalCache, default_folder

    return LocalCache(folder or default_folder(), bytes_max)


def serves_suffixes(location: Location) -> bool:
    """Whether the store gives the last bytes of an object without being told its size."""
    return KINDS[location.scheme] != AZURE
