"""Requests to an S3 server that obstore does not make: a bucket's settings, keys with fewer permissions."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from time import gmtime, strftime
from urllib.parse import quote, urlencode

from tests.servers.object_stores import StoreServer

_REGION = "us-east-1"


def ask(
    server: StoreServer, method: str, path: str, query: Mapping[str, str] = {}, body: bytes = b"",
    headers: Mapping[str, str] = {}, service: str = "s3",
) -> bytes:  # fmt: skip
    """The reply to a request that the server's owner signs (AWS Signature Version 4). Raises ``RuntimeError``
    with what the server said."""
    options = server.options()
    key, secret = options["fs.s3a.access.key"], options["fs.s3a.secret.key"]
    now = strftime("%Y%m%dT%H%M%SZ", gmtime())
    told = {
        **headers, "host": server.endpoint.partition("://")[2], "x-amz-date": now,
        "x-amz-content-sha256": hashlib.sha256(body).hexdigest(),
        "content-md5": base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
    }  # fmt: skip
    named = ";".join(sorted(told))
    asked = "&".join(f"{quote(k, safe='')}={quote(v, safe='')}" for k, v in sorted(query.items()))
    lines = "".join(f"{name}:{told[name]}\n" for name in sorted(told))
    canonical = "\n".join((method, path, asked, lines, named, told["x-amz-content-sha256"]))
    scope = f"{now[:8]}/{_REGION}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signing = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        signing = hmac.digest(signing, part.encode(), "sha256")
    signature = hmac.digest(signing, text.encode(), "sha256").hex()
    told["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={named}, Signature={signature}"
    )
    url = f"{server.endpoint}{path}" + (f"?{asked}" if asked else "")
    request = urllib.request.Request(url, body or None, told, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            found: bytes = reply.read()
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise RuntimeError(f"{method} {url}: {error.code} {error.read().decode()}") from None


def restricted(server: StoreServer, *statements: Mapping[str, object]) -> dict[str, str]:
    """Options with keys that may do no more than these statements of a policy, for a quarter of an hour."""
    policy = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    given = {"Action": "AssumeRole", "Version": "2011-06-15", "DurationSeconds": "900", "Policy": policy}
    form = {"content-type": "application/x-www-form-urlencoded"}
    reply = ask(server, "POST", "/", body=urlencode(given).encode(), headers=form, service="sts").decode()
    found = {name: re.search(f"<{name}>([^<]*)</{name}>", reply) for name in _KEYS}
    return {
        **server.options(),
        **{option: found[name][1] for name, option in _KEYS.items()},  # type: ignore[index]
    }


_KEYS = {
    "AccessKeyId": "fs.s3a.access.key",
    "SecretAccessKey": "fs.s3a.secret.key",
    "SessionToken": "fs.s3a.session.token",
}
