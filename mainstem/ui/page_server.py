"""The page's server: Python's own, with bounds.

What it is hardened against: pages that the browser shows beside ours (``admission``), answers taken for
something else (headers), scripts in names (the page's policy allows none but its own files, and no text is
ever parsed as HTML), and clients that send much, slowly, or hold many connections.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any

from mainstem.errors import Invalid
from mainstem.ui.admission import Admission
from mainstem.ui.answers import API, BODY_BYTES_MAX, Answers

#: connections at once, and seconds that one may be silent
CONNECTIONS_MAX, SILENT_S = 48, 20
_TYPES = {
    "html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml",
}  # fmt: skip
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script';"
    " trusted-types 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_COMPRESSED_FROM = 1_400


class PageServer(ThreadingHTTPServer):
    """Serves the page and its data on ``host`` and ``port`` (0: a free one) until it is shut down.

    Raises ``Invalid`` for an address that cannot be listened on.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, host: str, port: int, admission: Admission, answers: Answers) -> None:
        self.admission, self.answers = admission, answers
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self.address_family = family
            super().__init__((str(address[0]), int(address[1])), _Visit)
        except OSError as error:
            raise Invalid(
                f"cannot listen on {host} port {port}: {error.strerror or error}; give another --port or"
                " --host"
            ) from error

    def server_bind(self) -> None:
        """As ``HTTPServer`` does, without asking a name server for our name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def _admit(self, request: Any, client_address: Any) -> None:
        """A connection beyond the bound is closed at once."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def _visit(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def _failed(self, request: Any, client_address: Any) -> None:
        """Clients that go away are nobody's trouble."""

    # The names that Python's server calls.
    process_request, process_request_thread, handle_error = _admit, _visit, _failed

    @contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve from a thread; gives the address of the page."""
        thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="mainstem-ui", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.shutdown()
            self.server_close()
            thread.join()

    @property
    def url(self) -> str:
        """Where the page is."""
        host = self.server_name
        return f"http://{f'[{host}]' if ':' in host else host}:{self.server_port}/"


class _Visit(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mainstem", ""
    timeout = SILENT_S
    server: PageServer

    def _answer(self) -> None:
        try:
            self._answered()
        except (TimeoutError, ConnectionError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST = _answer  # names that Python's server calls

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: addresses of requests name tables and partitions."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Python's own complaints, as JSON like ours."""
        self.close_connection = True
        self._refuse(code, message or HTTPStatus(code).phrase)

    def _answered(self) -> None:
        data = self.path.startswith(API)
        headers = {name.lower(): value for name, value in self.headers.items()}
        refusal = self.server.admission.refusal(headers, data=data)
        if self.headers.get_all("host", []) != [headers.get("host")]:
            self._refuse(400, "expected one Host")
        elif refusal is not None:
            self._refuse(refusal.status, refusal.text)
        elif not data:
            self._page()
        elif self.command == "POST":
            body = self._body()
            if body is not None:
                self._data(*self.server.answers.answer("POST", self.path, body))
        elif headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            self._refuse(400, "a GET has no body")
        else:
            self._data(*self.server.answers.answer("GET", self.path))

    def _body(self) -> bytes | None:
        length = self.headers.get("content-length", "")
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if "transfer-encoding" in self.headers or not (length.isascii() and length.isdigit()):
            self._refuse(411, "give Content-Length")
        elif int(length) > BODY_BYTES_MAX:
            self._refuse(413, f"a body has at most {BODY_BYTES_MAX:,} bytes")
        elif kind != "application/json":
            self._refuse(415, "expected application/json")
        else:
            return self.rfile.read(int(length))
        return None

    def _page(self) -> None:
        name = self.path.partition("?")[0].lstrip("/") or "index.html"
        found = page_files().get(name)
        if self.command == "POST":
            self._refuse(405, "only data is asked for by POST")
        elif found is None:
            self._refuse(404, "nothing is here")
        else:
            content, tag = found
            known = self.headers.get("if-none-match") == tag
            self._send(
                304 if known else 200, _TYPES[name.rpartition(".")[2]], b"" if known else content,
                {"Cache-Control": "no-cache", "ETag": tag},
            )  # fmt: skip

    def _data(self, status: int, told: dict[str, Any]) -> None:
        content = json.dumps(told, separators=(",", ":"), default=str).encode()
        self._send(status, "application/json", content, {"Cache-Control": "no-store"})

    def _refuse(self, status: int, text: str) -> None:
        self.close_connection = True  # a body may follow that nobody reads
        self._data(status, {"error": {"kind": "Refused", "message": text, "table": None}})

    def _send(self, status: int, kind: str, content: bytes, more: dict[str, str]) -> None:
        headers = {"Content-Type": kind, **_HEADERS, **more}
        accepted = self.headers.get("accept-encoding", "") if getattr(self, "headers", None) else ""
        if "gzip" in accepted and len(content) >= _COMPRESSED_FROM:
            content = gzip.compress(content, 1)
            headers |= {"Content-Encoding": "gzip"}
        headers |= {"Vary": "Accept-Encoding", "Content-Length": str(len(content))}
        if self.close_connection:
            headers["Connection"] = "close"
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and status != 304:
            self.wfile.write(content)


@cache
def page_files() -> dict[str, tuple[bytes, str]]:
    """Name -> content and entity tag of each file of the page."""
    found = {}
    for one in resources.files("mainstem.ui").joinpath("page").iterdir():
        if one.name.rpartition(".")[2] in _TYPES:
            content = one.read_bytes()
            found[one.name] = content, f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return found
