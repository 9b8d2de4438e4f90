"""A small S3 server in this process, which counts requests and makes trouble when it is told to.

``with SmallS3() as server`` listens on 127.0.0.1; ``server.storage("path")`` is a storage there. It knows
what obstore uses: puts with conditions and metadata, gets of ranges, listings by pages, bulk deletes,
uploads in parts. Signatures are not looked at. ``server.log`` has (method, key, status) of every request,
``server.headers`` its headers, ``server.sent`` the bytes of each object that were sent; faults are told by
``server.fail``.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from mainstem.storage.backends import location_of
from mainstem.storage.location import Location
from mainstem.storage.object_store import ObjectStorage
from mainstem.storage.store_options import open_store

BUCKET = "bucket"
_CERTIFICATES = Path(__file__).parent / "certificates"
#: certificate of the authority that signed the server's
AUTHORITY = _CERTIFICATES / "authority.pem"
_META = "x-amz-meta-"
_PAGE = 1000
_LATE_S = 2.0
#: status, content, headers
_Reply = tuple[int, bytes, dict[str, str]]


@dataclass
class _Object:
    content: bytes
    metadata: dict[str, str]
    changed: float = field(default_factory=time.time)
    #: the ETag of an object that was put in parts
    parts: str = ""

    @property
    def tag(self) -> str:
        return f'"{self.parts or hashlib.md5(self.content).hexdigest()}"'


@dataclass
class Fault:
    """What happens to the next ``times`` requests with this method whose key matches.

    ``how``: ``lost``, the effect takes place and the connection ends without a reply; ``late``, the reply
    comes two seconds after the effect; ``cut``, it ends in the middle of the body; a number, that status is
    the reply and nothing takes place.
    """

    method: str
    key: str
    how: str | int
    times: int = 1
    text: str = ""


class SmallS3:
    """The server, in threads of its own; a context manager."""

    def __init__(self, *, tls: bool = False) -> None:
        self.objects: dict[str, _Object] = {}
        #: multipart uploads that are neither completed nor aborted: id -> parts by number
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.made = 0
        self.log: list[tuple[str, str, int]] = []
        #: the headers of every request, by lower-case names
        self.headers: list[dict[str, str]] = []
        #: how many bytes of each object were sent
        self.sent: Counter[str] = Counter()
        self.faults: list[Fault] = []
        #: access keys that have expired
        self.refused_keys: set[str] = set()
        self.mutex = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Request,), {"store": self}))
        self._server.daemon_threads = True
        if tls:  # by the authority in ``AUTHORITY``
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(_CERTIFICATES / "server.pem")
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_address[1]}"
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="small-s3", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> SmallS3:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def location(self, path: str, **options: str) -> Location:
        """A place in the server. ``options``: further ones of ``hoodie.mainstem.storage.``."""
        given = {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": "any",
            "fs.s3a.secret.key": "any-secret",
            **{f"hoodie.mainstem.storage.{name}": text for name, text in options.items()},
        }
        return location_of(f"s3://{BUCKET}/{path}", options=given)

    def storage(self, path: str, **options: str) -> ObjectStorage:
        """Storage that writes, below a prefix."""
        location = self.location(path, **options)
        return ObjectStorage(open_store(location), location)

    def put(self, key: str, content: bytes = b"") -> None:
        """Put an object past all requests."""
        self.objects[key] = _Object(content, {})

    def fail(self, method: str, key: str, how: str | int, times: int = 1, text: str = "") -> None:
        """Make a ``Fault``."""
        with self.mutex:
            self.faults.append(Fault(method, key, how, times, text))

    def fault(self, method: str, key: str) -> Fault | None:
        """The fault that the next such request meets."""
        with self.mutex:
            for one in self.faults:
                if one.times and one.method == method and re.search(one.key, key):
                    one.times -= 1
                    return one
        return None


class _Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # a body would wait 40 ms for the acknowledgement of its headers
    store: SmallS3

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _serve(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        body = self._body()
        self.store.headers.append({name.lower(): text for name, text in self.headers.items()})
        fault = self.store.fault(self.command, key)
        signer = re.search(r"Credential=(\w+)/", self.headers.get("Authorization", ""))
        if signer is not None and signer[1] in self.store.refused_keys:
            fault = Fault(self.command, key, 403, text=_error(403, "ExpiredToken")[1].decode())
        if fault is not None and isinstance(fault.how, int):
            self._reply(key, fault.how, fault.text.encode(), {})
            return
        with self.store.mutex:
            query = parse_qs(url.query, keep_blank_values=True)
            status, content, headers = self._effect(bucket, key, query, body)
        if fault is not None and fault.how == "late":
            time.sleep(_LATE_S)
        elif fault is not None:
            self.store.log.append((self.command, key, 0))
            if fault.how == "cut":
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
            return
        self._reply(key, status, content, headers)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _reply(self, key: str, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.store.log.append((self.command, key, status))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with self.store.mutex:
                self.store.sent[key] += len(content)
            self.wfile.write(content)

    def _effect(self, bucket: str, key: str, query: dict[str, list[str]], body: bytes) -> _Reply:
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        if self.command == "GET" and not key:
            return self._list(query)
        if "uploads" in query or "uploadId" in query:
            return self._multipart(key, query, body)
        if self.command == "POST":
            names = re.findall(r"<Key>([^<]*)</Key>", body.decode())
            for name in names:
                self.store.objects.pop(unescaped(name), None)
            gone = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            return 200, f"<DeleteResult>{gone}</DeleteResult>".encode(), {}
        effects: dict[str, Callable[[str, bytes], _Reply]] = {
            "PUT": self._put, "GET": self._get, "HEAD": self._get, "DELETE": self._delete,
        }  # fmt: skip
        return effects[self.command](key, body)

    def _multipart(self, key: str, query: dict[str, list[str]], body: bytes) -> _Reply:
        uploads = self.store.uploads
        if "uploads" in query:
            self.store.made += 1
            uploads[str(self.store.made)] = {}
            return 200, f"<R><UploadId>{self.store.made}</UploadId></R>".encode(), {}
        parts = uploads.get(query["uploadId"][0])
        if parts is None:
            return _error(404, "NoSuchUpload")
        if self.command == "PUT":
            source = unquote(self.headers.get("x-amz-copy-source", "")).lstrip("/").partition("/")[2]
            content = self.store.objects[source].content if source else body
            parts[int(query["partNumber"][0])] = content
            tag = f'"{hashlib.md5(content).hexdigest()}"'
            return 200, f"<CopyPartResult><ETag>{tag}</ETag></CopyPartResult>".encode(), {"ETag": tag}
        if self.command == "POST":
            status, content, headers = self._put(key, b"".join(parts[number] for number in sorted(parts)))
            if status != 200:
                return status, content, headers
            digests = b"".join(hashlib.md5(parts[number]).digest() for number in sorted(parts))
            self.store.objects[key].parts = f"{hashlib.md5(digests).hexdigest()}-{len(parts)}"
        del uploads[query["uploadId"][0]]
        if self.command == "DELETE":
            return 204, b"", {}
        return 200, f"<R><ETag>{escape(self.store.objects[key].tag)}</ETag></R>".encode(), {}

    def _put(self, key: str, body: bytes) -> _Reply:
        found = self.store.objects.get(key)
        match = self.headers.get("If-Match")
        if match is not None and found is None:
            return _error(404, "NoSuchKey")
        if (match is not None and found is not None and found.tag != match) or (
            self.headers.get("If-None-Match") == "*" and found is not None
        ):
            return _error(412, "PreconditionFailed")
        metadata = {k.lower(): v for k, v in self.headers.items() if k.lower().startswith(_META)}
        made = self.store.objects[key] = _Object(body, metadata)
        return 200, b"", {"ETag": made.tag}

    def _get(self, key: str, _: bytes) -> _Reply:
        found = self.store.objects.get(key)
        if found is None:
            return _error(404, "NoSuchKey")
        match = self.headers.get("If-Match")
        if match is not None and match != found.tag:
            return _error(412, "PreconditionFailed")
        size, headers = len(found.content), {
            "ETag": found.tag, "Last-Modified": formatdate(found.changed, usegmt=True), **found.metadata,
        }  # fmt: skip
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if asked is None:
            return 200, found.content, {**headers, "Content-Length": str(size)}
        first, last = asked.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= size:
            return _error(416, "InvalidRange")
        return 206, found.content[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}

    def _delete(self, key: str, _: bytes) -> _Reply:
        self.store.objects.pop(key, None)
        return 204, b"", {}

    def _list(self, query: dict[str, list[str]]) -> _Reply:
        prefix, delimiter = (query.get(name, [""])[0] for name in ("prefix", "delimiter"))
        after = max(query.get("start-after", [""])[0], query.get("continuation-token", [""])[0])
        contents, folders, last = [], [], ""
        for key in sorted(k for k in self.store.objects if k.startswith(prefix)):
            cut = key.find(delimiter, len(prefix)) + 1 if delimiter else 0
            shown = key[:cut] if cut else key
            if shown <= after or shown == last:
                continue
            if len(contents) + len(folders) == _PAGE:
                break
            last = shown
            if cut:
                folders.append(f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>")
            else:
                contents.append(_described(key, self.store.objects[key]))
        else:
            last = ""
        more = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>" if last else ""
        text = f"<ListBucketResult>{''.join(contents + folders)}{more}</ListBucketResult>"
        return 200, text.encode(), {}


def _described(key: str, found: _Object) -> str:
    changed = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found.changed))
    return (
        f"<Contents><Key>{escape(key)}</Key><LastModified>{changed}.{int(found.changed * 1000) % 1000:03}Z"
        f"</LastModified><ETag>{escape(found.tag)}</ETag><Size>{len(found.content)}</Size></Contents>"
    )


def unescaped(text: str) -> str:
    """XML's escapes undone."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


def _error(status: int, code: str) -> _Reply:
    return status, f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode(), {}
