"""Who we are on S3, where obstore does not find it out by itself: keys that are given, profiles, roles.

obstore reads the environment, a web identity, a container's and an instance's role. It knows no profiles
(``~/.aws``), and it would add the environment's session token to keys that are given. The order is that of
AWS's own tools: what is given, the environment, a web identity, the profile, then the roles of obstore's.

Keys of a profile are looked up again when its files change, so that a job goes on with the credentials that
another tool renews. Profiles that say how to get credentials (a role, single sign-on, a process) take boto3,
which renews them.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from mainstem.errors import Invalid, Unsupported
from mainstem.limits import AWS_FILE_BYTES_MAX
from mainstem.options import stores

_KEY, _SECRET, _TOKEN = "aws_access_key_id", "aws_secret_access_key", "aws_session_token"
_WEB_IDENTITY = "AWS_WEB_IDENTITY_TOKEN_FILE"
_PROFILE_PROVIDERS = ("ProfileAWSCredentialsProvider", "ProfileCredentialsProvider")
#: what a profile says if its credentials come from elsewhere
_ELSEWHERE = ("role_arn", "credential_process", "sso_session", "sso_start_url", "web_identity_token_file",
              "login_session")  # fmt: skip
#: obstore asks again before the next request; that costs a look at two files
_AGAIN = datetime(2000, 1, 1, tzinfo=UTC)

Provider = Callable[[], Any]


class Identity(NamedTuple):
    """What signs requests (None: obstore looks for itself), and where a profile says that the bucket is."""

    provider: Provider | None
    region: str = ""
    endpoint: str = ""


def identity(values: Mapping[str, str], table: str) -> Identity:
    """The identity that the options of a store and this process's environment name.

    ``table``: for messages. Raises ``Invalid`` for a profile that is not there, ``Unsupported`` where boto3
    is needed and missing.
    """
    files, chosen, keys = _Files.named(values), _chosen_profile(values), _given_keys(values)
    elsewhere = keys is not None or (not chosen and (_from_environment() or _by_web_identity()))
    name = chosen or os.environ.get("AWS_PROFILE", "")
    found = files.profile(name or "default")
    if found is None and name and not elsewhere:
        raise Invalid(f"there is no profile {name!r} in {files.config} or {files.credentials}", table=table)
    found = found or {}
    provider: Provider | None = keys
    if stores.S3_ROLE.read(values) and (keys is not None or chosen or not _by_web_identity()):
        provider = _assuming(values, keys, None if elsewhere else name, table)
    elif not elsewhere and found.get(_KEY) and found.get(_SECRET):
        provider = _ProfileKeys(files, name or "default")
    elif not elsewhere and any(word in found for word in _ELSEWHERE):
        provider = _by_boto3(name or "default", files, table)
    return Identity(provider, found.get("region", ""), found.get("endpoint_url", ""))


def _chosen_profile(values: Mapping[str, str]) -> str:
    """The profile that options ask for, whatever the environment says; "" if they ask for none."""
    chosen = stores.S3_PROFILE.read(values)
    if not chosen and stores.S3_PROVIDER.read(values).endswith(_PROFILE_PROVIDERS):
        chosen = os.environ.get("AWS_PROFILE", "") or "default"
    return chosen


def _given_keys(values: Mapping[str, str]) -> _Keys | None:
    key, secret = stores.S3_ACCESS_KEY.read(values), stores.S3_SECRET_KEY.read(values)
    if not key and not secret:
        return None
    if not key or not secret:
        missing = stores.S3_ACCESS_KEY if secret else stores.S3_SECRET_KEY
        raise Invalid(f"{missing} is missing: an access key id and its secret are given together")
    return _Keys(key, secret, stores.S3_SESSION_TOKEN.read(values) or None)


def _from_environment() -> bool:
    return bool(os.environ.get("AWS_ACCESS_KEY_ID"))


def _by_web_identity() -> bool:
    return bool(os.environ.get(_WEB_IDENTITY))


@dataclass(frozen=True)
class _Keys:
    """Credentials that never change."""

    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        return {
            "access_key_id": self.key, "secret_access_key": self.secret, "token": self.token,
            "expires_at": None,
        }  # fmt: skip


class _Files:
    """The two files with profiles, read again when they change."""

    def __init__(self, config: str, credentials: str) -> None:
        self.config = config
        self.credentials = credentials
        self._seen: tuple[object, ...] = ()
        self._profiles: dict[str, dict[str, str]] = {}

    @classmethod
    def named(cls, values: Mapping[str, str]) -> _Files:
        """Those that options, the environment or custom name."""
        told = os.environ.get
        credentials = stores.S3_PROFILE_FILE.read(values) or told("AWS_SHARED_CREDENTIALS_FILE", "")
        return cls(
            os.path.expanduser(told("AWS_CONFIG_FILE", "") or "~/.aws/config"),
            os.path.expanduser(credentials or "~/.aws/credentials"),
        )

    def profile(self, name: str) -> dict[str, str] | None:
        """What both files say of a profile, the credentials' file first; None if neither has it."""
        seen = (_look(self.config), _look(self.credentials))
        if seen != self._seen or not self._seen:
            profiles: dict[str, dict[str, str]] = {}
            for section, said in _sections(self.config).items():
                # [default] or [profile NAME]; others are no profiles
                prefix, _, rest = section.partition(" ")
                if section == "default" or prefix == "profile":
                    profiles.setdefault(rest.strip() or section, {}).update(said)
            for section, said in _sections(self.credentials).items():
                profiles.setdefault(section, {}).update(said)
            self._profiles, self._seen = profiles, seen
        return self._profiles.get(name)


def _look(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _sections(path: str) -> dict[str, dict[str, str]]:
    """The sections of a file of AWS's; none if it cannot be read. Raises ``Invalid`` if it does not parse."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(AWS_FILE_BYTES_MAX + 1)
    except (OSError, UnicodeDecodeError):
        return {}
    if len(text) > AWS_FILE_BYTES_MAX:
        raise Invalid(f"{path} has more than {AWS_FILE_BYTES_MAX} bytes: no file with profiles is as long")
    parser = configparser.RawConfigParser(strict=False, default_section="\0", allow_no_value=True)
    try:
        parser.read_string(text)
    except configparser.Error as error:  # its text repeats lines of the file
        raise Invalid(f"{path} is no file with profiles ({type(error).__name__})") from None
    return {
        section: {key: (value or "").strip() for key, value in parser.items(section)}
        for section in parser.sections()
    }


@dataclass(frozen=True)
class _ProfileKeys:
    """The keys of a profile, as its files have them now."""

    files: _Files = field(repr=False)
    name: str

    def __call__(self) -> dict[str, Any]:
        found = self.files.profile(self.name) or {}
        if not found.get(_KEY) or not found.get(_SECRET):
            raise ValueError(f"the profile {self.name!r} in {self.files.credentials} has no keys any more")
        return {
            "access_key_id": found[_KEY], "secret_access_key": found[_SECRET],
            "token": found.get(_TOKEN) or None, "expires_at": _AGAIN,
        }  # fmt: skip


# -- by boto3 ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Renewed:
    """Credentials that botocore renews in time; obstore must not keep them longer."""

    credentials: Any = field(repr=False)

    def __call__(self) -> dict[str, Any]:
        now = self.credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key, "secret_access_key": now.secret_key, "token": now.token,
            "expires_at": _AGAIN,
        }  # fmt: skip


def _session(profile: str | None, files: _Files, what: str, table: str) -> Any:
    try:
        import botocore.session
    except ImportError as error:
        raise Unsupported(f"{what} needs boto3, AWS's own library: pip install boto3", table=table) from error
    session = botocore.session.Session(profile=profile or None)
    session.set_config_variable("credentials_file", files.credentials)
    return session


def _by_boto3(name: str, files: _Files, table: str) -> Provider:
    what = f"the profile {name!r} of {files.config} names no keys but a way to get them, which"
    return _renewed(_session(name, files, what, table), f"the profile {name!r} of {files.config}", table)


def _renewed(session: Any, what: str, table: str) -> _Renewed:
    try:
        found = session.get_credentials()
    except Exception as error:  # botocore's many
        raise Invalid(f"{what} is refused: {error}", table=table) from None
    if found is None:
        raise Invalid(f"{what} gives no credentials", table=table)
    return _Renewed(found)


def _assuming(values: Mapping[str, str], keys: _Keys | None, profile: str | None, table: str) -> _Renewed:
    """Credentials of a role, which is assumed with ``keys``, a profile's, or those of boto3's own chain."""
    what = f"{stores.S3_ROLE} without a web identity, which"
    session = _session(profile, _Files.named(values), what, table)
    if keys is not None:
        session.set_credentials(keys.key, keys.secret, keys.token)
    source = _renewed(session, f"who assumes {stores.S3_ROLE}", table).credentials
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    def client(service: str, **said: Any) -> Any:
        endpoint = stores.S3_STS_ENDPOINT.read(values) or None
        region = stores.S3_STS_REGION.read(values) or stores.S3_REGION.read(values) or None
        return session.create_client(service, **said, endpoint_url=endpoint, region_name=region)

    more = {"RoleSessionName": stores.S3_ROLE_SESSION.read(values)}
    if external := stores.S3_ROLE_EXTERNAL_ID.read(values):
        more["ExternalId"] = external
    fetcher = AssumeRoleCredentialFetcher(client, source, stores.S3_ROLE.read(values), extra_args=more)
    return _Renewed(DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role"))


def boto3_session(values: Mapping[str, str], table: str) -> Any:
    """A session of boto3's for another service of AWS's, with the identity that the options of a store name.

    Raises as ``identity``.
    """
    chosen, keys, what = _chosen_profile(values), _given_keys(values), "a lock in DynamoDB"
    session = _session(chosen, _Files.named(values), what, table)
    if keys is not None:
        session.set_credentials(keys.key, keys.secret, keys.token)
    if stores.S3_ROLE.read(values) and (keys is not None or chosen or not _by_web_identity()):
        session._credentials = _assuming(values, keys, chosen, table).credentials
    import boto3.session

    return boto3.session.Session(botocore_session=session)
