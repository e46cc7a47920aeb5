"""A server before the S3 server that loses answers, fails or says nothing, as told."""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Literal, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from types import TracebackType

Trouble = Literal["lose the answer", "fail", "be silent", "conflict"]


class FlakyServer:
    """Passes requests on; each trouble in `troubles` befalls one request of that method."""

    def __init__(self, upstream: str) -> None:
        self.troubles: list[tuple[str, Trouble]] = []
        self.requests: list[str] = []
        self.users: list[str] = []
        self._upstream = urlsplit(upstream).netloc
        self._quiet = threading.Event()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                owner._answer(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

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

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        self.requests.append(f"{request.command} {request.path}")
        self.users.append(request.headers.get("Authorization", ""))
        trouble = None
        if self.troubles and self.troubles[0][0] == request.command:
            trouble = self.troubles.pop(0)[1]
        if trouble == "be silent":
            self._quiet.wait(60)
            request.close_connection = True
        elif trouble in ("fail", "conflict"):
            self._send(request, 503 if trouble == "fail" else 409, b"<Error>busy</Error>")
        else:
            connection = HTTPConnection(self._upstream, timeout=30)
            connection.request(request.command, request.path, body, dict(request.headers))
            reply = connection.getresponse()
            content = reply.read()
            connection.close()
            if trouble == "lose the answer":
                request.close_connection = True
            else:
                self._send(request, reply.status, content, dict(reply.getheaders()))

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
