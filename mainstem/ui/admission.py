"""Who may ask the page's server: names of hosts, origins, the token.

A server on loopback is reached by every page that the browser shows. What keeps those out:

- The name in ``Host`` must be one of ours: a foreign name that was made to resolve to this machine (DNS
  rebinding) is none.
- ``Origin`` and ``Sec-Fetch-Site`` must be the page's own, where the browser sends them.
- No cookie, no password that a browser would send by itself: a token travels in ``Authorization`` alone.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

from mainstem.errors import Invalid

TOKEN_CHARS_MIN, TOKEN_CHARS_MAX = 16, 512
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_OWN_SITE = ("same-origin", "none")


@dataclass(frozen=True)
class Refusal:
    """Status and text of an answer to who may not ask."""

    status: int
    text: str


@dataclass(frozen=True)
class Admission:
    """``hosts``: names that requests may give, in lower case; ``token``: what data costs, None for none."""

    hosts: frozenset[str]
    token: str | None = None

    @classmethod
    def of(cls, host: str, token: str | None, names: tuple[str, ...] = ()) -> Admission:
        """For a server that listens on ``host``; ``names``: further names under which it is reached.

        Raises ``Invalid`` for another host than loopback without a token, and for a token that is too short.
        """
        if token is not None:
            usual = token.isascii() and token.isprintable() and " " not in token
            if not usual or not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
                raise Invalid(
                    f"the token has {len(token)} characters; expected {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX}"
                    " of ASCII without spaces, hard to guess: python -c 'import secrets;"
                    " print(secrets.token_urlsafe())'"
                )
        elif not is_loopback(host):
            raise Invalid(
                f"--host {host}: other machines could read the tables; give a token (--token, or the variable"
                " MAINSTEM_UI_TOKEN), or stay on 127.0.0.1"
            )
        own = (*_LOOPBACK, host) if is_loopback(host) else (host,)
        return cls(frozenset(name.lower() for name in (*own, *names)), token)

    def refusal(self, headers: Mapping[str, str | None], *, data: bool) -> Refusal | None:
        """Why a request is not answered; None if it is. ``headers``: by lower-case name; ``data``: asks for
        more than the page itself, which is the same for everybody."""
        host = headers.get("host") or ""
        if not self._knows(host):
            return Refusal(421, "this server does not have that name; see --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            return Refusal(403, "the request comes from another page")
        if not data:
            return None
        site = headers.get("sec-fetch-site")
        if site is not None and site not in _OWN_SITE:
            return Refusal(403, "the request comes from another page")
        return None if self._is_paid(headers.get("authorization")) else Refusal(401, "give the token")

    def _knows(self, host: str) -> bool:
        name = host_name(host)
        if name in self.hosts:
            return True
        # Where the token decides, a number may be any of this machine's addresses: no name leads to it.
        return self.token is not None and _is_address(name)

    def _is_paid(self, given: str | None) -> bool:
        if self.token is None:
            return True
        kind, _, token = (given or "").partition(" ")
        return kind.lower() == "bearer" and hmac.compare_digest(token.strip().encode(), self.token.encode())


def host_name(host: str) -> str:
    """The name in a ``Host`` header, in lower case, without port and brackets."""
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if text.count(":") == 1 else text


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server on ``host``."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
