"""Bytes that are no proper request: the console refuses them and still answers."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING

import pytest

from tests.console.conftest import Site, read_only, shop

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["read_only", "shop"]  # fixtures of the console's own tests


@pytest.fixture
def backend() -> str:
    """What is asked has nothing to do with the database."""
    return "sqlite"


RAW = [
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /tables/%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/../../console.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/%2e%2e/%2e%2e/console.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /static/..%2fconsole.py HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999999\r\n\r\nx",
    b"POST /sql HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data\r\n"
    b"Content-Length: 4\r\n\r\nabcd",
    b"POST /sql HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    b"\0\0\0\0\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
]


@pytest.fixture
def address(read_only: Site) -> Iterator[tuple[str, int]]:
    yield "127.0.0.1", int(read_only.served.address.rsplit(":", 1)[1])
    assert read_only.get("/").status_code == 200, "the console still answers"


@pytest.mark.parametrize("request_bytes", RAW, ids=range(len(RAW)))
def test_bytes_that_are_no_proper_request(address: tuple[str, int], request_bytes: bytes) -> None:
    with socket.create_connection(address, timeout=60) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
    assert not answer or not re.match(rb"HTTP/1.1 5\d\d", answer), answer[:500]
    assert b"Traceback" not in answer
    assert b"root:" not in answer
    assert b"def " not in answer
