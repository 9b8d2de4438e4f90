"""A server of the page for tests, and who asks it."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mainstem.truetime.clock import SystemClock
from mainstem.ui.admission import Admission
from mainstem.ui.answers import Answers
from mainstem.ui.found_tables import places
from mainstem.ui.page_server import PageServer


@dataclass
class Asking:
    """Asks the server on ``port``; ``sent`` are headers of each request."""

    port: int
    sent: Mapping[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def raw(
        self, method: str, target: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and content of any request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, target, body=body, headers={**self.sent, **(headers or {})})
            answer = connection.getresponse()
            content = answer.read()
            if answer.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            return answer.status, answer.headers, content
        finally:
            connection.close()

    def __call__(self, path: str, status: int = 200, **body: Any) -> Any:
        """Data of ``/api/<path>``: by POST where there is a body. The answer must have this status."""
        sent = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        told = self.raw(
            "POST" if body else "GET", f"/api/{path}", json.dumps(body).encode() if body else None, sent
        )
        found = json.loads(told[2])
        assert told[0] == status, found
        return found

    def table(self, name: str) -> str:
        """Where the data of a table is, by the end of its name."""
        (found,) = [one["id"] for one in self("tables")["tables"] if one["name"].endswith(name)]
        return f"tables/{found}"

    def timeline(self, table: str) -> list[dict[str, Any]]:
        """All instants, page by page, in the order in which they were told last."""
        rows: dict[str, dict[str, Any]] = {}
        view, since, more = "", 0, True
        while more:
            page = self(f"{table}/timeline?view={view}&since={since}")
            for row in page["rows"]:
                one = dict(zip(page["columns"], row, strict=True))
                rows.pop(one["requested"], None)
                rows[one["requested"]] = one
            view, since, more = page["view"], page["since"], page["more"]
        return list(rows.values())


@contextmanager
def served(*given: object, token: str | None = None, **sent: str) -> Iterator[Asking]:
    """The page of the tables at these places, on a free port of loopback."""
    answers = Answers(places([str(one) for one in given], {}), {}, SystemClock())
    server = PageServer("127.0.0.1", 0, Admission.of("127.0.0.1", token), answers)
    with server.in_background():
        yield Asking(server.server_port, sent)
