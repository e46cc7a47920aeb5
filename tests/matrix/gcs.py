"""A gateway that serves the XML API of Google Cloud Storage from fake-gcs-server.

The clients of deltasql and deltalake use the XML API. fake-gcs-server implements uploads, their
preconditions and pages of listings in the JSON API only. The gateway translates each request; the
server stores all objects and checks all preconditions. Only the parts of unfinished uploads are
kept here.

`python -m tests.matrix.gcs ADDRESS PORT` serves until it is stopped.
"""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from xml.etree.ElementTree import Element, SubElement, fromstring, tostring

# The first part of the paths of the JSON API. No bucket of the tests has one of these names.
_JSON_API = {"batch", "download", "resumable", "storage", "upload"}
# Headers that each of the two connections has for itself.
_OWN = {"connection", "content-length", "date", "host", "server", "transfer-encoding"}
_FORWARDED = ("content-type", "content-range", "etag", "last-modified", "x-goog-generation")


class Server(ThreadingHTTPServer):
    """The gateway of one fake-gcs-server."""

    request_queue_size = 64
    daemon_threads = True

    def __init__(self, port: int, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.uploads: dict[str, dict[int, bytes]] = {}
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    """Translates the requests of one connection; those of the JSON API are forwarded."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""

    def parse_request(self) -> bool:
        """Read a request; one of the JSON API is handled by `do_FORWARD`."""
        is_valid = super().parse_request()
        if is_valid and self._bucket in _JSON_API:
            self.method, self.command = self.command, "FORWARD"
        return is_valid

    def do_FORWARD(self) -> None:
        """Pass a request of the JSON API on as it is."""
        asked = {name: value for name, value in self.headers.items() if name.lower() not in _OWN}
        status, body, headers = self._ask(self.method, self.path, self._read(), asked)
        kept = {name: value for name, value in headers.items() if name.lower() not in _OWN}
        if "Location" in kept:  # of an upload: the client stays at the address that it uses
            own = self.headers["Host"]
            kept["Location"] = kept["Location"].replace(self.server.upstream, own)
        length = headers.get("Content-Length") if self.method == "HEAD" else None
        self._send(status, body, kept, length)

    def do_GET(self) -> None:
        """List a bucket, or return an object."""
        if not self._key:
            self._list()
            return
        self._forward_read()

    def do_HEAD(self) -> None:
        """Describe an object."""
        self._forward_read()

    def do_DELETE(self) -> None:
        """Delete an object, or abort an upload."""
        upload = self._query.get("uploadId")
        if upload is None:
            status, body, _ = self._ask("DELETE", self._object(self._bucket, self._key))
            self._send(status, body)
        else:
            self.server.uploads.pop(upload, None)
            self._send(204)

    def do_PUT(self) -> None:
        """Create an object, copy one, or receive a part of an upload."""
        body = self._read()
        if "uploadId" in self._query:
            parts = self.server.uploads.get(self._query["uploadId"])
            if parts is None:
                self._send(404, b"<Error><Code>NoSuchUpload</Code></Error>")
                return
            parts[int(self._query["partNumber"])] = body
            self._send(200, headers={"ETag": f'"{hashlib.md5(body).hexdigest()}"'})
        elif source := self.headers.get("x-goog-copy-source"):
            bucket, _, key = unquote(source).removeprefix("/").partition("/")
            target = self._object(self._bucket, self._key).removeprefix("/storage/v1")
            status, reply, _ = self._ask("POST", f"{self._object(bucket, key)}/rewriteTo{target}")
            self._send(status, reply)
        else:
            self._insert(body)

    def do_POST(self) -> None:
        """Begin or complete an upload in parts."""
        body = self._read()
        if "uploads" in self._query:
            upload = uuid.uuid4().hex
            self.server.uploads[upload] = {}
            reply = Element("InitiateMultipartUploadResult")
            _add(reply, Bucket=self._bucket, Key=self._key, UploadId=upload)
            self._send(200, tostring(reply))
            return
        parts = self.server.uploads.get(self._query["uploadId"])
        if parts is None:
            self._send(404, b"<Error><Code>NoSuchUpload</Code></Error>")
            return
        chosen = [int(each.text or "") for each in fromstring(body).findall(".//{*}PartNumber")]
        self._insert(b"".join(parts[number] for number in chosen), upload=self._query["uploadId"])

    @property
    def _query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    @property
    def _bucket(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix("/").partition("/")[0])

    @property
    def _key(self) -> str:
        return unquote(urlsplit(self.path).path.removeprefix("/").partition("/")[2])

    def _object(self, bucket: str, key: str) -> str:
        return f"/storage/v1/b/{quote(bucket, safe='')}/o/{quote(key, safe='')}"

    def _insert(self, data: bytes, *, upload: str | None = None) -> None:
        """Store an object; with `upload`, respond as to the completion of this upload."""
        options = {"uploadType": "media", "name": self._key}
        if generation := self.headers.get("x-goog-if-generation-match"):
            options["ifGenerationMatch"] = generation
        path = f"/upload/storage/v1/b/{quote(self._bucket, safe='')}/o?{urlencode(options)}"
        kind = {"Content-Type": "application/octet-stream"}
        status, body, _ = self._ask("POST", path, data, kind)
        if status != 200:
            self._send(status, body)
            return
        stored = json.loads(body)
        etag = f'"{stored["etag"].strip(chr(34))}"'
        headers = {"ETag": etag, "x-goog-generation": str(stored["generation"])}
        reply = b""
        if upload is not None:
            self.server.uploads.pop(upload, None)
            result = Element("CompleteMultipartUploadResult")
            _add(result, Bucket=self._bucket, Key=self._key, ETag=etag)
            reply = tostring(result)
        self._send(200, reply, headers)

    def _list(self) -> None:
        asked = self._query
        after = asked.get("start-after", "")
        options = {
            "prefix": asked.get("prefix", ""),
            "delimiter": asked.get("delimiter", ""),
            "startOffset": after,
            "pageToken": asked.get("continuation-token", ""),
            "maxResults": asked.get("max-keys", "1000"),
        }
        path = f"/storage/v1/b/{quote(self._bucket, safe='')}/o?{urlencode(options)}"
        status, body, _ = self._ask("GET", path)
        if status != 200:
            self._send(status, b"<Error><Code>NoSuchBucket</Code></Error>")
            return
        found: dict[str, Any] = json.loads(body)
        result = Element("ListBucketResult")
        for item in found.get("items", []):
            if item["name"] != after:  # startOffset includes the name itself, start-after does not
                _add(
                    SubElement(result, "Contents"),
                    Key=item["name"],
                    Size=str(item["size"]),
                    LastModified=item["updated"],
                    ETag=f'"{item["etag"].strip(chr(34))}"',
                )
        for prefix in found.get("prefixes", []):
            _add(SubElement(result, "CommonPrefixes"), Prefix=prefix)
        if token := found.get("nextPageToken"):
            _add(result, NextContinuationToken=token)
        self._send(200, tostring(result, encoding="utf-8"))

    def _forward_read(self) -> None:
        path = f"/download{self._object(self._bucket, self._key)}?alt=media"
        conditions = ("Range", "If-Match", "If-None-Match")
        asked = {name: self.headers[name] for name in conditions if name in self.headers}
        status, body, headers = self._ask(self.command, path, headers=asked)
        kept = {name: value for name, value in headers.items() if name.lower() in _FORWARDED}
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self._send(status, body, kept, length)

    def _read(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()  # the end of the last, empty chunk
        return b"".join(chunks)

    def _ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, dict[str, str]]:
        connection = HTTPConnection(self.server.upstream, timeout=60)
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content, dict(reply.getheaders())

    def _send(
        self,
        status: int,
        body: bytes = b"",
        headers: dict[str, str] | None = None,
        length: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status != 204:
            self.wfile.write(body)


def _add(parent: Element, **texts: str) -> None:
    for name, text in texts.items():
        SubElement(parent, name).text = text


if __name__ == "__main__":
    Server(int(sys.argv[2]), sys.argv[1]).serve_forever()
