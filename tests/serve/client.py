"""A client of the service, as small as the protocol allows."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import Request, urlopen

import pyarrow.parquet as pq

if TYPE_CHECKING:
    import pyarrow as pa

    from deltasql.serve import Service


class ServiceError(Exception):
    """An answer with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.types = error["types"]


class Client:
    """Sends requests to a service."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self._address, self._token = service.address, token or service.token

    def lines(self, request: str, *, protocol: str = "v1", **body: Any) -> list[dict[str, Any]]:
        """Return all lines of an answer; raise the error that one of them is."""
        headers = {"Authorization": f"Bearer {self._token}"}
        url = f"{self._address}/{protocol}/{request}"
        try:
            answer = urlopen(Request(url, json.dumps(body).encode(), headers, method="POST"))
        except HTTPError as error:
            answer = error
        found = [json.loads(line) for line in answer.read().splitlines()]
        for line in found:
            if "error" in line:
                raise ServiceError(line["error"])
        return found

    def ask(self, request: str, **body: Any) -> dict[str, Any]:
        """Return the only line of an answer."""
        (found,) = self.lines(request, **body)
        return found

    def begin(self, name: str, **body: Any) -> dict[str, Any]:
        """Begin a write to a table at its latest version, as a Spark session does."""
        if "create" not in body:
            table = self.ask("table", namespace="default", name=name)
            body |= {"id": table["id"], "version": table["version"]}
        return self.ask("write_begin", namespace="default", name=name, **body)


def write_file(begun: dict[str, Any], rows: pa.Table) -> dict[str, Any]:
    """Write rows where a write may put them, and return the file for the commit."""
    name = f"part-{uuid.uuid4()}.parquet"
    folder = Path(unquote(urlsplit(begun["folder"]).path))
    folder.mkdir(exist_ok=True)
    pq.write_table(rows, folder / name)
    return {"name": name}
