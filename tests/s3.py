"""Runs an S3 server in its own process and creates a bucket for each test.

`python -m tests.s3 MILLISECONDS` prints its port and serves until its standard input is closed. It
answers each request after a delay, and counts the requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_ROOT = Path(__file__).parents[1]
_COUNTS = "/requests-since-the-last-call"


@contextmanager
def running_s3(delay_ms: int = 0) -> Iterator[str]:
    """Run the server during a block, and yield its address."""
    # The user's AWS credentials must not reach the test server.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.s3", str(delay_ms)],
        cwd=_ROOT,
        env=clean,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        assert server.stdin is not None
        server.stdin.close()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """Yield the address of the server."""
    with running_s3() as address:
        yield address


@pytest.fixture
def s3_options(s3_server: str) -> dict[str, str]:
    """Return the `storage.options` for the server."""
    return options_for(s3_server)


@pytest.fixture
def s3_location(s3_server: str) -> str:
    """Return a folder in a new bucket."""
    return f"{new_bucket(s3_server)}/lake"


def options_for(address: str) -> dict[str, str]:
    """Return the options for a server at this address."""
    return {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "hunter2-hunter2",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


def new_bucket(address: str) -> str:
    """Create a bucket and return its URL."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    with urlopen(Request(f"{address}/{name}", method="PUT")):
        return f"s3://{name}"


def requests_to(address: str) -> dict[str, int]:
    """Return the number of requests of each kind since the last call, such as {"PUT": 2}.

    "at once" is the largest number of requests that were waiting at the same time.
    """
    with urlopen(f"{address}{_COUNTS}") as answer:
        counts: dict[str, int] = json.load(answer)
    return counts


def _one_at_a_time(app: Callable[..., Any]) -> Callable[..., Any]:
    """Handle one request at a time: the server checks for a key and writes it in two steps."""
    guard = threading.Lock()

    def handle(environment: Any, start_response: Any) -> list[bytes]:
        with guard:
            return [b"".join(app(environment, start_response))]

    return handle


def _delayed(app: Callable[..., Any], delay_ms: int) -> Callable[..., Any]:
    """Delay each request, and count the requests. Delays of concurrent requests overlap."""
    from werkzeug.wrappers import Request as Received

    counts: Counter[str] = Counter()
    waiting: set[object] = set()
    guard = threading.Lock()

    def handle(environment: Any, start_response: Any) -> Any:
        request = Received(environment)
        with guard:
            if request.path == _COUNTS:
                body = json.dumps(counts).encode()
                counts.clear()
                start_response("200 OK", [("Content-Length", str(len(body)))])
                return [body]
            counts["LIST" if "list-type" in request.args else request.method] += 1
            waiting.add(request)
            counts["at once"] = max(counts["at once"], len(waiting))
        time.sleep(delay_ms / 1000)
        with guard:
            waiting.remove(request)
        return app(environment, start_response)

    return handle


def _serve(delay_ms: int) -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class QuietHandler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # keep connections open, as real stores do

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    app = _delayed(_one_at_a_time(DomainDispatcherApplication(create_backend_app)), delay_ms)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
