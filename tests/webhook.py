"""A web server on loopback that keeps what is posted to it."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

Posted = list[tuple[str, Any]]


@contextmanager
def webhook_server() -> Iterator[tuple[int, Posted]]:
    """Start one, and end it afterwards; yield its port, and a list of path and document of each post."""
    posted: Posted = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            posted.append((self.path, json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_port, posted
    finally:
        server.shutdown()
        server.server_close()
