"""The HTTP server of the local service."""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import socket
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from deltasql import _core, telemetry
from deltasql.api.catalog.connect import connect
from deltasql.exceptions import TxnLogError, redact
from deltasql.serve.errors import described_error, problem
from deltasql.serve.requests import REQUESTS, State
from deltasql.serve.service_file import write_service_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.config import Config

PROTOCOL = 2
"""The version of the protocol, which is the first part of every path."""
_OTHER_PROTOCOL = (
    "The jar and the service must be of one release: deltasql.spark.jar() returns the path of the "
    "jar of an installed deltasql."
)
_PREFIX = f"/v{PROTOCOL}/"
_LARGEST_REQUEST = 1 << 28
"""In bytes. A commit of a million files is smaller."""
_log = logging.getLogger("deltasql.serve")


class Service:
    """Handles the requests of clients on this machine about one catalog.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Service(f"deltasql://sqlite/{folder.name}/catalog.db") as service:
    ...     service.address.rpartition(":")[0]
    'http://127.0.0.1'
    """

    def __init__(
        self,
        catalog: str | Catalog,
        config: Config | None = None,
        *,
        token: str | None = None,
        port: int = 0,
    ) -> None:
        """Open a catalog, by its URI or its name, and listen; `start` handles requests.

        A catalog that is passed open is not closed at the end. Port 0 is any free port.
        """
        self._is_owner = isinstance(catalog, str)
        self.catalog: Any = connect(catalog, config) if isinstance(catalog, str) else catalog
        self.token = token or secrets.token_urlsafe(32)
        self._state = State(self.catalog)
        self._file: Path | None = None
        try:
            self._server = _Server(("127.0.0.1", port), self._state, self.token)
        except OSError:
            self._close_catalog()
            raise
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="deltasql-serve", daemon=True
        )

    @property
    def address(self) -> str:
        """The URL that clients connect to."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def access(self) -> dict[str, object]:
        """The content of a service file: what a client needs to connect."""
        return {
            "protocol": PROTOCOL,
            "release": _core.__version__,
            "address": self.address,
            "token": self.token,
            "pid": os.getpid(),
            "largest_request": _LARGEST_REQUEST,
        }

    def start(self, file: Path | None = None) -> Self:
        """Handle requests in a thread of this process, and write a service file."""
        self._thread.start()
        if file is not None:
            write_service_file(file, self.access)
            self._file = file
        return self

    def stop(self) -> None:
        """Stop listening, roll back open transactions and remove the service file."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        if self._file is not None:
            with suppress(FileNotFoundError):
                self._file.unlink()
        self._state.close()
        self._close_catalog()

    def _close_catalog(self) -> None:
        if self._is_owner:
            self.catalog.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a Spark driver may open many connections at once

    def __init__(self, address: tuple[str, int], state: State, token: str) -> None:
        self.state, self.token = state, token
        self._connections: set[socket.socket] = set()
        super().__init__(address, _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection, which a client uses for many requests."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection at its end."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print an error of a connection, unless the client closed it, which it may do any time."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """Close the port and all connections."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):  # the client may have closed it
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16

    def do_POST(self) -> None:
        """Handle one request."""
        try:
            # Read the body in any case, because the connection is used again.
            body = self._body()
            status, response = self._too_large() if body is None else self._response(body)
            self._send(status, response)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _body(self) -> bytes | None:
        """Return the body of the request; None if it is too large."""
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.close_connection = True
            return b""
        left = int(length)
        if left <= _LARGEST_REQUEST:
            return self.rfile.read(left)
        # Most clients read the response only after they have sent the whole body.
        while left > 0 and (part := self.rfile.read(min(left, 1 << 20))):
            left -= len(part)
        return None

    def _too_large(self) -> tuple[int, Iterable[Mapping[str, Any]]]:
        length = self.headers["Content-Length"]
        message = f"the request has {length} bytes, and the limit is {_LARGEST_REQUEST}"
        return 413, [_problem("RequestTooLarge", message, "Write fewer files in one commit.")]

    def _response(self, body: bytes) -> tuple[int, Iterable[Mapping[str, Any]]]:
        sent = self.headers.get("Authorization", "")
        if not hmac.compare_digest(sent.encode(), f"Bearer {self.server.token}".encode()):
            return 401, [_problem("WrongToken", "the token is wrong")]
        version, _, name = self.path.removeprefix("/").partition("/")
        if f"/{version}/" != _PREFIX:
            return 404, [
                _problem(
                    "UnknownProtocol",
                    f"the service of deltasql {_core.__version__} has protocol {PROTOCOL}, "
                    f"and the client sent a request of protocol {version.removeprefix('v')!r}",
                    _OTHER_PROTOCOL,
                )
            ]
        if name == "transaction_hold":
            return 200, self._held(json.loads(body))
        handler = REQUESTS.get(name)
        if handler is None:
            return 404, [_problem("UnknownRequest", f"this service has no request {name!r}")]
        try:
            found = handler(self.server.state, json.loads(body or b"{}"))
        except Exception as error:
            return 400, [_error(error, self.path)]
        return 200, [found] if isinstance(found, dict) else found

    def _held(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Roll back a transaction when its client closes this connection."""
        yield {}
        self.wfile.flush()
        try:
            self.connection.recv(1)  # returns at the end of the connection
        finally:
            self.server.state.transactions.end(str(body["transaction"]))

    def _send(self, status: int, response: Iterable[Mapping[str, Any]]) -> None:
        """Send JSON lines in chunks; an error after the first line is sent as the last line."""
        self.send_response(status)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for each in response:
                self._send_line(each)
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            self._send_line(_error(error, self.path))
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _send_line(self, content: Mapping[str, Any]) -> None:
        line = json.dumps(content, separators=(",", ":")).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def log_message(self, format: str, *args: Any) -> None:
        """Log at level debug; the base class writes every request to stderr."""
        telemetry.log(_log, logging.DEBUG, "request", line=format % args)


def _problem(kind: str, message: str, help: str = "") -> dict[str, Any]:
    return {"error": problem([kind], message, help)}


def _error(error: Exception, path: str) -> dict[str, Any]:
    """Return an error as a line of the response.

    An error that is not one of deltasql's is unexpected, and is logged with its stack.
    """
    if isinstance(error, TxnLogError):
        return {"error": described_error(error)}
    _log.error("the request %s failed", path, exc_info=error)
    return _problem("InternalError", redact(f"{type(error).__name__}: {error}"))
