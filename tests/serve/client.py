"""A client of the service, as small as the protocol allows."""

from __future__ import annotations

import json
import threading
import uuid
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from deltasql.serve import Service


class ServiceError(Exception):
    """A response with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.types, self.help = error["types"], error["help"]


class Client:
    """Sends requests to a service."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self._address, self._token = service.address, token or service.token

    def lines(self, request: str, *, protocol: str = "v2", **body: Any) -> list[dict[str, Any]]:
        """Return all lines of a response; raise the error that one of them is."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"{self._address}/{protocol}/{request}"
        try:
            response = urlopen(Request(url, json.dumps(body).encode(), headers, method="POST"))
        except HTTPError as error:
            response = error
        found = [json.loads(line) for line in response.read().splitlines()]
        for line in found:
            if "error" in line:
                raise ServiceError(line["error"])
        return found

    def call(self, request: str, **body: Any) -> dict[str, Any]:
        """Return the only line of a response."""
        (found,) = self.lines(request, **body)
        return found

    def begin(self, name: str, **body: Any) -> dict[str, Any]:
        """Begin a write to a table at its latest version, as a Spark session does."""
        if "create" not in body:
            table = self.call("table", namespace="default", name=name)
            body |= {"id": table["id"], "version": table["version"]}
        return self.call("write_begin", namespace="default", name=name, **body)


def write_file(begun: dict[str, Any], rows: pa.Table) -> dict[str, Any]:
    """Write rows to the folder of an open write, and return the file for its commit."""
    name = f"part-{uuid.uuid4()}.parquet"
    folder = Path(unquote(urlsplit(begun["folder"]).path))
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / name)
    return {"name": name}


def watch_ends(service: Service) -> threading.Event:
    """Return an event that is set when the service rolls back an open transaction."""
    transactions, ended = service._state.transactions, threading.Event()
    end = transactions.end

    def observed(txn_id: str) -> None:
        end(txn_id)
        ended.set()

    transactions.end = observed  # type: ignore[method-assign]
    return ended


@contextmanager
def losing_responses(
    service: Service, request: str, *, times: int, containing: bytes = b""
) -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a proxy that loses the first responses, and what it lost.

    Only responses to requests whose body has the text `containing` are lost.
    """
    lost: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Authorization": self.headers["Authorization"]}
            with urlopen(Request(f"{service.address}{self.path}", body, headers)) as response:
                if self.path.endswith("/transaction_hold"):
                    self.hold(response)
                content = response.read()
            self.close_connection = True
            if self.path.endswith(f"/{request}") and len(lost) < times and containing in body:
                lost.append(request)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            # Without this header the client may use a connection that is about to be closed.
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(content)

        def hold(self, response: Any) -> None:
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(response.readline())
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{proxy.server_address[1]}", lost
        proxy.shutdown()
        thread.join()
