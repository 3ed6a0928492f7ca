"""A proxy on loopback that can stop forwarding: connections stay open, bytes vanish, nobody is told.

So a network behaves that loses every packet, and a server that hangs: the kernels at both ends go on to acknowledge.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Proxy:
    """Forwards to one port of this machine, until `swallow`."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._is_swallowing = threading.Event()
        self._swallowed = threading.Event()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def swallow(self) -> None:
        """Forward nothing from now on, in either direction."""
        self._is_swallowing.set()

    def forward(self) -> None:
        """Serve those who connect from now on; what was swallowed does not come back."""
        self._is_swallowing.clear()
        self._swallowed.clear()

    def lead_to(self, port: int) -> None:
        """Connect those who come from now on to another port of this machine."""
        self._to = ("127.0.0.1", port)

    def wait_for_a_victim(self, seconds: float) -> bool:
        """Wait until somebody has said something in vain."""
        return self._swallowed.wait(seconds)

    def close(self) -> None:
        for each in (self._listening, *self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(self._to)
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        is_lost = False
        with suppress(OSError):
            while data := source.recv(65536):
                is_lost = is_lost or self._is_swallowing.is_set()
                if is_lost:  # for good: half of a stream is none
                    self._swallowed.set()
                else:
                    target.sendall(data)
            if not is_lost:
                target.shutdown(socket.SHUT_WR)


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """Give a proxy to a port of this machine for a moment."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
