"""The console rejects malformed HTTP requests and keeps answering."""

from __future__ import annotations

import contextlib
import re
import socket
from typing import TYPE_CHECKING

import pytest

from tests.console.conftest import Site, read_only, shop

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_only", "shop"]  # fixtures of the console tests


@pytest.fixture
def backend() -> str:
    """The requests do not depend on the database."""
    return "sqlite"


HOST = b"Host: localhost\r\nConnection: close\r\n"
# Complete requests: the server must respond.
WHOLE = [
    b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
    b"GET /tables/%ff%fe HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /static/../../console.py HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /static/%2e%2e/%2e%2e/console.py HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /static/..%2fconsole.py HTTP/1.1\r\n" + HOST + b"\r\n",
    b"POST /sql HTTP/1.1\r\n" + HOST + b"Content-Type: multipart/form-data\r\n"
    b"Content-Length: 4\r\n\r\nabcd",
    b"GET / HTTP/1.1\r\n" + HOST + b"Host: evil.example\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
]
# Malformed requests: the server may also close the connection, even before all is sent.
BROKEN = [
    b"POST /sql HTTP/1.1\r\n" + HOST + b"Content-Length: -1\r\n\r\n",
    b"POST /sql HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/9.9\r\n" + HOST + b"\r\n",
    b"\0\0\0\0\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 5000 + b"\r\n",
]
# The body is shorter than its Content-Length.
CUT = b"POST /sql HTTP/1.1\r\n" + HOST + b"Content-Length: 9999999999999\r\n\r\nx"


@pytest.fixture
def address(read_only: Site) -> Iterator[tuple[str, int]]:
    yield "127.0.0.1", int(read_only.served.address.rsplit(":", 1)[1])
    assert read_only.get("/").status_code == 200, "the console still answers"


@pytest.mark.parametrize("request_bytes", WHOLE, ids=range(len(WHOLE)))
def test_unusual_requests_get_a_response(address: tuple[str, int], request_bytes: bytes) -> None:
    response = send(address, request_bytes)
    assert response.startswith(b"HTTP/1.1 "), response[:500]
    check(response)


@pytest.mark.parametrize("request_bytes", BROKEN, ids=range(len(BROKEN)))
def test_malformed_requests_cause_no_server_error(
    address: tuple[str, int], request_bytes: bytes
) -> None:
    check(send(address, request_bytes))


def test_truncated_body_causes_no_server_error(address: tuple[str, int]) -> None:
    check(send(address, CUT, ends=True))


def send(address: tuple[str, int], request: bytes, *, ends: bool = False) -> bytes:
    """Send bytes and read the whole response; the server may close the connection at any time."""
    response = b""
    with (
        contextlib.suppress(ConnectionError),
        socket.create_connection(address, timeout=60) as connection,
    ):
        # A request that is rejected before it is sent completely still gets a response.
        with contextlib.suppress(ConnectionError):
            connection.sendall(request)
        if ends:
            connection.shutdown(socket.SHUT_WR)
        while piece := connection.recv(65_536):
            response += piece
    return response


def check(response: bytes) -> None:
    assert not re.match(rb"HTTP/1.1 5\d\d", response), response[:500]
    assert b"Traceback" not in response
    assert b"root:" not in response
    assert b"def " not in response
