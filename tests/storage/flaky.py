"""A proxy for an object store that loses responses, fails or does not respond, as configured."""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

Fault = Literal[
    "lose the response",
    "fail",  # too busy
    "break",  # an internal error
    "be silent",
    "conflict",
    "expired on S3",  # the credentials have expired, as each store reports it
    "expired on Azure",
    "expired on Google",
    "be late",  # the request is executed after the client has stopped waiting
    "do it twice",  # like a proxy that repeats the request; the response is that of the second one
    "respond twice",  # the second response arrives before the next request
]
_LATE_S = 2.0
_ERRORS = {
    "fail": (503, b"<Error><Code>SlowDown</Code></Error>"),
    "break": (500, b"<Error><Code>InternalError</Code></Error>"),
    "conflict": (409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"),
    "expired on S3": (400, b"<Error><Code>ExpiredToken</Code></Error>"),
    "expired on Azure": (403, b"<Error><Code>AuthenticationFailed</Code></Error>"),
    "expired on Google": (401, b"<Error><Code>AuthenticationRequired</Code></Error>"),
}
# Headers of one connection or of one encoding of the body, which are not passed on.
_NOT_FORWARDED = ("content-length", "date", "server", "connection", "transfer-encoding")


class FlakyServer:
    """Forwards requests; each entry of `faults` affects one request with that method.

    Entries of `faults_by_request` affect requests by their number, whatever the method.
    """

    def __init__(self, upstream: str) -> None:
        self.faults: list[tuple[str, Fault]] = []
        self.faults_by_request: dict[int, Fault] = {}
        self.late: list[threading.Thread] = []
        self._guard = threading.Lock()
        self.requests: list[str] = []
        self.users: list[str] = []
        self._upstream = urlsplit(upstream).netloc
        self._quiet = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def forward_or_fail(self) -> None:
                try:
                    owner._handle(self)
                except ConnectionError:  # the client does not wait for the response any more
                    self.close_connection = True

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward_or_fail

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._quiet.set()
        self._server.shutdown()
        self._server.server_close()

    def _handle(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._guard:
            injected = self.faults_by_request.pop(len(self.requests), None)
            self.requests.append(f"{request.command} {request.path}")
        self.users.append(request.headers.get("Authorization", ""))
        fault = injected
        if self.faults and self.faults[0][0] == request.command:
            fault = self.faults.pop(0)[1]
        if fault == "be silent":
            self._quiet.wait(60)
            request.close_connection = True
        elif fault == "be late":
            self.late.append(threading.current_thread())
            self._quiet.wait(_LATE_S)
            self._forward(request, body)
            request.close_connection = True
        elif fault in _ERRORS:
            self._send(request, *_ERRORS[fault])
        else:
            if fault == "do it twice":
                self._forward(request, body)
            status, content, headers = self._forward(request, body)
            if fault == "lose the response":
                request.close_connection = True
            else:
                self._send(request, status, content, headers)
            if fault == "respond twice":
                self._send(request, status, content, headers)

    def _forward(
        self, request: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = HTTPConnection(self._upstream, timeout=30)
        connection.request(request.command, request.path, body, dict(request.headers))
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content, dict(reply.getheaders())

    def _send(
        self,
        request: BaseHTTPRequestHandler,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in (headers or {}).items():
            if name.lower() not in _NOT_FORWARDED:
                request.send_header(name, value)
        length = (headers or {}).get("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
