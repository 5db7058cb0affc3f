"""A registry of schemas in this process, over HTTP: as much of Confluent's interface as codecs use."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Schemas by id from 1, and the requests for them.

    Attributes:
        url: Where it is.
        refusal: A status that it answers with instead; 0: none.
        authorizations: What the requests had in the header of that name.
    """

    def __init__(self) -> None:
        self.url = ""
        self.schemas: list[dict[str, str]] = []
        self.asked: list[str] = []
        self.authorizations: list[str | None] = []
        self.refusal = 0

    def answer(self, path: str, body: Any) -> tuple[int, object]:
        """The status and the answer to a request; `body` is None for a GET."""
        self.asked.append(path)
        if self.refusal:
            return self.refusal, {"error_code": self.refusal, "message": "no"}
        if body is None:
            number = int(path.removeprefix("/schemas/ids/"))
            return (200, self.schemas[number - 1]) if number <= len(self.schemas) else (404, {"error_code": 40403})
        if body not in self.schemas:
            self.schemas.append(body)
        return 200, {"id": self.schemas.index(body) + 1}


@contextmanager
def served_registry() -> Iterator[Registry]:
    """A registry that serves until the block ends."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.authorizations.append(self.headers.get("Authorization"))
            size = int(self.headers.get("Content-Length") or 0)
            status, told = registry.answer(self.path, json.loads(self.rfile.read(size)) if size else None)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(told).encode())

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
