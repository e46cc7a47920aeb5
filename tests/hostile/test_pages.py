"""Any value in any part of a console request gets a safe response that reveals nothing."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltasql.console import console, pages
from deltasql.console.console import READ, WRITE
from deltasql.console.server import serving
from deltasql.uri import DeltaSqlUri
from tests.console.conftest import TOKEN, new_shop
from tests.hostile.texts import MORE, hostile_text
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator

METHODS = ("GET", "GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "ODD")
HEADERS = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Cookie",
    "Host",
    "If-Modified-Since",
    "If-None-Match",
    "Origin",
    "Range",
    "Referer",
    "Sec-Fetch-Site",
    "X-Forwarded-Host",
)
FAMILIAR = (
    *("orders", "crm.stock", "day", "id", "id = 3", "2024-05-01", "SELECT 1", "operation", "size"),
    *("0", "1", "-1", "8", "9007199254740993", "2**63", "1e3", "٣", "²", "true", "on"),
    *("http://[", "http://127.0.0.1:x", "null", "bytes=9-1", "bytes=0-0,-0", "Bearer x"),
)
ANY = hostile_text() | st.sampled_from(FAMILIAR)
SCRIPTS = ("<script>alert", "<img src=x", "\r\nSet-Cookie")


def parameters() -> list[str]:
    """Return every parameter name that a page reads from its URL or its form."""
    parameter = re.compile(r'(?:text|number|choice|form\.get)\(\s*"(\w+)"|form\["(\w+)"\]')
    found = {"cursor", "csrf", "nobody"}
    for module in (console, *vars(pages).values()):
        if inspect.ismodule(module):
            found |= {a or b for a, b in parameter.findall(inspect.getsource(module))}
    return sorted(found)


PATHS = sorted(
    {path for path, _ in (*READ, *WRITE)}
    | {"/login", "/logout", "/metrics", "/static/{name}", "/static/console.css", "/{name}"}
)


class Visited:
    """The console of a test catalog, and a client that is signed in."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client
        form = {"csrf": _csrf(client.get("/login").text), "token": TOKEN}
        assert client.post("/login", data=form).status_code == 303
        self.csrf = _csrf(client.get("/sql").text)
        self.cookies = dict(client.cookies)

    def send(self, method: str, path: str, headers: dict[str, str], form: dict[str, str]) -> Any:
        self.client.cookies.update(self.cookies)  # the client may have been signed out
        bare = {name: value.encode("latin-1", "replace") for name, value in headers.items()}
        body = form if method == "POST" else None
        return self.client.request(method, path, headers=bare, data=body)


@pytest.fixture(scope="module")
def visited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visited]:
    folder = tmp_path_factory.mktemp("shop")
    uri = DeltaSqlUri(backend="sqlite", database=str(folder / "meta.db"))
    with (
        new_shop(uri, folder) as catalog,
        serving(catalog, allow_writes=True, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=600) as client,
    ):
        yield Visited(client)


def test_parameter_names_of_pages_are_found() -> None:
    assert {"hours", "sql", "token", "cursor"} <= {*parameters()}


@settings(max_examples=examples(100 * MORE))
@given(data=st.data())
def test_any_console_request_gets_a_safe_response(visited: Visited, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(PATHS))
    filled = re.sub(r"\{\w+\}", lambda _: quote(data.draw(ANY), safe=""), path)
    names = st.sampled_from(parameters())
    query = data.draw(st.dictionaries(names, ANY, max_size=4))
    written = "&".join(f"{name}={quote(value)}" for name, value in query.items())
    # HTTP clients do not send headers with line breaks.
    value = ANY.map(lambda text: re.sub(r"[\x00-\x1f\x7f]", " ", text)[:1000].strip())
    headers = data.draw(st.dictionaries(st.sampled_from(HEADERS), value, max_size=2))
    form = data.draw(st.dictionaries(names, ANY, max_size=4))
    if data.draw(st.booleans()):
        form["csrf"] = visited.csrf
    method = data.draw(st.sampled_from(METHODS))
    response = visited.send(method, f"{filled}?{written}"[:60_000], headers, form)
    is_harmless(response)


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null", "x", "http://127.0.0.1:x"])
def test_form_with_an_invalid_origin_is_rejected(visited: Visited, origin: str) -> None:
    form = {"csrf": visited.csrf, "sql": "SELECT 1"}
    response = visited.send("POST", "/sql", {"Origin": origin}, form)
    is_harmless(response)
    assert response.status_code == 403


def is_harmless(response: Any) -> None:
    assert response.status_code < 500, response.text[:2000]
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["x-content-type-options"] == "nosniff"
    body = response.text
    assert "Traceback" not in body
    assert "root:x:" not in body
    assert TOKEN not in body + str(response.headers)
    if response.headers.get("content-type", "").startswith("text/html"):
        assert not [script for script in SCRIPTS if script in body]


def _csrf(page: str) -> str:
    return page.split('name="csrf" value="')[1].split('"')[0]
