"""A PostgreSQL proxy that parses the protocol and cuts a connection at a chosen message."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.uri import DeltaSqlUri

Cut = Literal[
    "reply to COMMIT",
    "half of the reply to COMMIT",
    "reply to SELECT",
    "half of the reply to SELECT",
    "request after BEGIN",
    "half of it",
]


class Proxy:
    """Listens on a TCP port; `arm` cuts one connection, `refuse` closes all of them."""

    def __init__(self) -> None:
        with psycopg.connect(os.environ["TEST_DATABASE_URL"]) as connection:
            self._host, self._port = connection.info.host, connection.info.port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._guard = threading.Lock()
        self._open: list[socket.socket] = []
        self._armed: tuple[Cut, Callable[[], None]] | None = None
        self._is_stopped = False
        self._spared = 0
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        self._close_all()

    def uri(self, uri: DeltaSqlUri) -> DeltaSqlUri:
        """Return the URI of the same catalog through this proxy."""
        port: int = self._listener.getsockname()[1]
        return replace(uri, host="127.0.0.1", port=port, sslmode="disable")

    def arm(self, cut: Cut, then: Callable[[], None] = lambda: None, *, but_first: int = 0) -> None:
        """Cut the next connection that reaches this message.

        `then` is called before the client can notice. `but_first` is the number of matching replies
        that pass before the cut.
        """
        self._spared = but_first
        self._armed = (cut, then)

    def disarm(self) -> None:
        """Do not cut any more connections."""
        self._armed = None

    def stop_accepting(self) -> None:
        """Behave like a stopped server: close every connection and accept no new one."""
        self._is_stopped = True
        self._close_all()

    def accept(self) -> None:
        """Accept connections again."""
        self._is_stopped = False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._is_stopped:
                client.close()
                continue
            server = self._connect()
            with self._guard:
                self._open += [client, server]
            conversation = _Conversation(self, client, server)
            for relay in (conversation.requests, conversation.replies):
                threading.Thread(target=relay, daemon=True).start()

    def _connect(self) -> socket.socket:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
            return server
        return socket.create_connection((self._host, self._port))

    def _close_all(self) -> None:
        with self._guard:
            ends, self._open = self._open, []
        for end in ends:
            _end(end)

    def is_armed(self, cut: Cut) -> bool:
        return self._armed is not None and self._armed[0] == cut

    def cuts_reply(self, word: str) -> Cut | None:
        """Return how the reply to this command is cut, or None."""
        with self._guard:
            cut = None if self._armed is None else self._armed[0]
            if cut is None or not cut.endswith(f"reply to {word}"):
                return None
            self._spared -= 1
            return cut if self._spared < 0 else None

    def fire(self) -> None:
        """Run the callback of the cut, once."""
        with self._guard:
            armed, self._armed = self._armed, None
            self.cuts += 1
        if armed is not None:
            armed[1]()


class _Conversation:
    """The connection of one client to the server through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy, self._client, self._server = proxy, client, server
        self._began = False

    def requests(self) -> None:
        """Relay the requests of the client."""
        for data in _received(self._client):
            for cut, kept in (("request after BEGIN", 0), ("half of it", len(data) // 2)):
                if self._began and self._proxy.is_armed(cut):  # type: ignore[arg-type]
                    _send(self._server, data[:kept])
                    self._cut()
                    return
            if not _send(self._server, data):
                break
        self._close_connections()

    def replies(self) -> None:
        """Relay the replies of the server, message by message."""
        pending = b""
        for data in _received(self._server):
            pending += data
            while len(pending) >= 5:
                size = 1 + struct.unpack("!I", pending[1:5])[0]
                if len(pending) < size:
                    break
                message, pending = pending[:size], pending[size:]
                self._began |= message[:1] == b"C" and message[5:-1] == b"BEGIN"
                if message[:1] == b"C" and message[5:-1] == b"COMMIT":
                    self._began = False
                # In autocommit, the server sends a statement's completion after it has committed.
                word = message[5:11].decode("ascii", "replace") if message[:1] == b"C" else ""
                cut = self._proxy.cuts_reply(word) if word in ("COMMIT", "SELECT") else None
                if cut is not None:
                    _send(self._client, message[: len(message) // 2 if "half" in cut else 0])
                    self._cut()
                    return
                _send(self._client, message)
        self._close_connections()

    def _cut(self) -> None:
        _end(self._server)
        self._proxy.fire()
        _end(self._client)

    def _close_connections(self) -> None:
        _end(self._server)
        _end(self._client)


def _received(end: socket.socket) -> Iterator[bytes]:
    while True:
        try:
            data = end.recv(65536)
        except OSError:
            return
        if not data:
            return
        yield data


def _send(end: socket.socket, data: bytes) -> bool:
    try:
        end.sendall(data)
    except OSError:
        return False
    return True


def _end(end: socket.socket) -> None:
    # Without `shutdown`, the other thread would still wait in `recv`.
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
