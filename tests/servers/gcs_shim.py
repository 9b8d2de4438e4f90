"""Lets obstore write to fake-gcs-server, which does not know the XML API's PUT that obstore uses.

``GcsShim(port)`` listens on a port of its own and passes requests on to ``127.0.0.1:port``. A PUT becomes an
upload of the JSON API, with its condition and its metadata.
"""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_META = "x-goog-meta-"
_BOUNDARY = "mainstem-shim"
_DROPPED = {"transfer-encoding", "connection", "content-length", "date", "server"}


class GcsShim:
    """The shim, in threads of its own; a context manager."""

    def __init__(self, target: int) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("_Bound", (_Shim,), {"target": target}))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="gcs-shim", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Shim(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A reply leaves in one piece, at once: else its second packet would wait 40 ms for an acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    target = 0

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path, headers = self.path, {k: v for k, v in self.headers.items() if k.lower() != "host"}
        method = self.command
        if method == "PUT":
            method, path, headers, body = self._upload(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=30)
        try:
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            content = reply.read()
        finally:
            connection.close()
        self.send_response(reply.status)
        for name, value in reply.getheaders():
            if name.lower() not in _DROPPED:
                self.send_header(name, value)
        if self.command == "PUT" and reply.status == 200:
            made = json.loads(content)
            self.send_header("ETag", f'"{made.get("etag", "").strip(chr(34))}"')
            self.send_header("x-goog-generation", made["generation"])
            content = b""
        size = reply.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", size or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on

    def _upload(self, body: bytes) -> tuple[str, str, dict[str, str], bytes]:
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        told = {name.lower(): value for name, value in self.headers.items()}
        metadata = {name.removeprefix(_META): text for name, text in told.items() if name.startswith(_META)}
        described = json.dumps({"name": key, "metadata": metadata}).encode()
        parts = [
            f"--{_BOUNDARY}\r\nContent-Type: application/json\r\n\r\n".encode() + described,
            f"\r\n--{_BOUNDARY}\r\nContent-Type: application/octet-stream\r\n\r\n".encode() + body,
            f"\r\n--{_BOUNDARY}--\r\n".encode(),
        ]
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&name={quote(key, safe='')}"
        if (condition := told.get("x-goog-if-generation-match")) is not None:
            path += f"&ifGenerationMatch={condition}"
        kind = f"multipart/related; boundary={_BOUNDARY}"
        return "POST", path, {"Content-Type": kind}, b"".join(parts)
