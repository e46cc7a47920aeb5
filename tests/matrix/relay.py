"""A TCP relay that loses one response: the server has answered, and the client never learns it."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self


class Relay:
    """Passes connections on to a server; `lose` drops one response and its connection.

    The relay does not parse the protocol, so it works with TLS and with every server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._server = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._guard = threading.Lock()
        self._open: list[socket.socket] = []
        self._passing: int | None = None
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        with self._guard:
            for end in self._open:
                _close(end)

    def lose(self, *, after: int) -> None:
        """Let this many responses pass, then lose the next one."""
        with self._guard:
            self._passing = after

    def pass_all(self) -> None:
        """Lose no more responses."""
        with self._guard:
            self._passing = None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._server)
            except OSError:
                client.close()
                continue
            with self._guard:
                self._open += [client, server]
            asked = threading.Event()
            for relay in (self._requests, self._responses):
                threading.Thread(target=relay, args=(client, server, asked), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, asked: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                asked.set()
                server.sendall(data)
        _close(client), _close(server)

    def _responses(
        self, client: socket.socket, server: socket.socket, asked: threading.Event
    ) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if asked.is_set():
                    asked.clear()
                    if self._loses_this():
                        break
                client.sendall(data)
        _close(client), _close(server)

    def _loses_this(self) -> bool:
        with self._guard:
            if self._passing is None:
                return False
            self._passing -= 1
            if self._passing >= 0:
                return False
            self._passing = None
            self.lost += 1
            return True


def _close(end: socket.socket) -> None:
    # Without `shutdown`, the other thread would still wait in `recv`.
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
