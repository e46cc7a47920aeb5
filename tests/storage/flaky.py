"""A proxy for the S3 server that loses responses, fails or does not respond, as configured."""

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
    "be late",  # the request is executed after the client has stopped waiting
    "do it twice",  # like a proxy that repeats the request; the response is that of the second one
    "respond twice",  # the second response arrives before the next request
]
_LATE_S = 2.0
_ERROR_STATUS = {"fail": 503, "break": 500, "conflict": 409}


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
                owner._handle(self)

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
        elif fault in _ERROR_STATUS:
            self._send(request, _ERROR_STATUS[fault], b"<Error>busy</Error>")
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
            if name.lower() not in ("content-length", "date", "server", "connection"):
                request.send_header(name, value)
        length = (headers or {}).get("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(body)))
        request.end_headers()
        request.wfile.write(body)
