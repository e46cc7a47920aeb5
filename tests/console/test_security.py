"""Access control: host names, tokens, cross-site forms, headers and cookies."""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

import httpx
import pytest

import deltasql
from deltasql.console.console import WRITE, Console
from deltasql.console.security import HEADERS
from deltasql.console.server import serving
from tests.console.conftest import TOKEN, Site
from tests.console.test_pages import PAGES
from tests.each import check_each

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog

READS = [path for path in PAGES if path != "/login"]
WRITES = [path.replace("{name}", "orders") for path, _ in WRITE]
ELSEWHERE = (
    *("//evil.example", "/\\evil.example", "\\\\evil.example", "/\t/evil.example", "/\n//evil"),
    *(" //evil.example", "https://evil.example", "https:evil.example", "javascript:alert(1)"),
    *("evil.example", "", "%2F%2Fevil.example", "/%5c/evil\\", "/\u2028//evil", "/ü", "/a b"),
    *("/login", "/login?next=/sql", "/oidc/login", "/logout", "/" + "a" * 5000),
)
"""Texts that are not the address of a page of the console."""


def leads_to_sign_in(answer: httpx.Response, path: str) -> bool:
    """Return whether a page leads to the sign-in, which then leads back to the page."""
    place = urlsplit(answer.headers["location"])
    asked = dict(parse_qsl(place.query)).get("next", "/")
    return not place.netloc and place.path == "/login" and asked == path


def lands_at(site: Site, asked: str) -> str:
    """Return where a sign-in with the token leads whose form asks for a page."""
    form = {"token": TOKEN, "next": asked}
    return str(site.post("/login", form).headers["location"])


@pytest.fixture
def backend() -> str:
    """Use SQLite only: access control does not depend on the backend."""
    return "sqlite"


def test_unknown_host_names_are_rejected(read_only: Site) -> None:
    for host in (
        *("evil.example", "evil.example:8420", "127.0.0.1.evil.example", "", "[", "169.254.1.1"),
    ):
        assert read_only.get("/", headers={"Host": host}).status_code == 421, host


def test_local_host_names_are_accepted(read_only: Site) -> None:
    port = read_only.served.address.rsplit(":", 1)[1]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "[::1]:80", "LOCALHOST"):
        assert read_only.get("/login", headers={"Host": host}).status_code == 200


def test_every_response_has_security_headers(read_only: Site) -> None:
    for path in ("/", "/sql", "/nosuch", "/metrics", "/static/console.css"):
        shown = read_only.get(path)
        for name, value in HEADERS.items():
            assert shown.headers[name] == value, path
        policy = shown.headers["Content-Security-Policy"]
        assert "unsafe" not in policy, path
        assert "default-src 'none'" in policy, path


def test_pages_comply_with_the_content_security_policy(site: Site) -> None:
    site.log_in()
    for path in PAGES:
        shown = site.get(path).text
        assert not re.search(r"<[^>]+\sstyle=", shown), path
        assert not re.search(r"<[^>]+\son[a-z]+=", shown), path
        assert "<style" not in shown
        scripts = 3 if path == "/sql" else 1  # the editor and the history of queries
        assert shown.count("<script") == shown.count('<script src="/static/') == scripts, path
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", shown), path


def test_read_only_console_rejects_writes(read_only: Site) -> None:
    def check(path: str) -> None:
        before = read_only.catalog.table("orders").version()
        assert read_only.post(path, {"confirm": "yes"}).status_code == 403
        assert read_only.catalog.table("orders").version() == before
        assert read_only.get(path).status_code == 405

    check_each(WRITES, check)


def test_writes_need_the_token(site: Site) -> None:
    def check(path: str) -> None:
        before = site.catalog.table("orders").version()
        refused = site.post(path, {"confirm": "yes"})
        assert (refused.status_code, refused.headers["location"]) == (303, "/login")
        assert site.served.token is not None
        assert site.post("/login", {"token": site.served.token[:-1]}).status_code == 403
        assert site.post(path, {"confirm": "yes"}).headers["location"] == "/login"
        assert site.catalog.table("orders").version() == before

    check_each(WRITES, check)


def test_cross_site_forms_are_rejected(site: Site) -> None:
    site.log_in()

    def check(path: str) -> None:
        before = site.catalog.table("orders").version()
        form = {"sql": "SELECT 1", "confirm": "yes"}
        assert site.client.post(path, data=form).status_code == 403
        assert site.client.post(path, data={**form, "csrf": "0" * 64}).status_code == 403
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Sec-Fetch-Site": "cross-site"},
            {"Sec-Fetch-Site": "same-site"},
        ):
            assert site.post(path, form, headers=headers).status_code == 403
        assert site.catalog.table("orders").version() == before

    check_each([*WRITES, "/sql", "/logout"], check)


def test_session_cookie_is_http_only_strict_and_renewed_at_login(site: Site) -> None:
    cookie = site.get("/").headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    before = dict(site.client.cookies)
    site.log_in()
    assert dict(site.client.cookies) != before  # a session id that an attacker set is not kept


def test_signing_out_ends_the_session(site: Site) -> None:
    site.log_in()
    assert "Writes allowed" in site.get("/").text
    assert site.post("/logout").status_code == 303
    assert "Writes allowed" not in site.get("/").text
    assert site.post(WRITES[0]).headers["location"] == "/login"


def test_reads_need_the_token_on_a_public_address(shop: Catalog) -> None:
    with (
        serving(shop, host="0.0.0.0", names=["console.example"], token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        assert served.token_to_read
        for path in ("/", "/tables/orders", "/sql", "/health"):
            assert leads_to_sign_in(site.get(path), path)
        assert site.post("/sql", {"sql": "SELECT 1"}).headers["location"] == "/login"
        assert site.get("/metrics").status_code == 401
        given = {"Authorization": f"Bearer {TOKEN}"}
        assert site.get("/metrics", headers=given).status_code == 200
        assert site.get("/login", headers={"Host": "console.example"}).status_code == 200
        site.log_in()
        assert site.get("/tables/orders").status_code == 200
        assert site.post(WRITES[0]).status_code == 403


def test_sign_in_leads_to_the_page_that_was_asked_for(shop: Catalog) -> None:
    with (
        serving(shop, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        for path in ("/tables/orders", "/tables/orders/rows?order=id&part=rows", "/sql?q=a%20b%2F"):
            wanted = path.replace("&part=rows", "").replace("%20", "+")
            asked = site.get(path)
            assert leads_to_sign_in(asked, wanted)
            form = site.get(asked.headers["location"]).text
            assert f'name="next" value="{wanted}"' in form
            wrong = site.post("/login", {"token": "wrong", "next": wanted})
            assert f'name="next" value="{wanted}"' in wrong.text  # a second attempt
            assert lands_at(site, wanted) == wanted
            assert site.get(path).status_code == 200
            site.post("/logout")
        assert site.post("/login", {"token": TOKEN}).headers["location"] == "/"


def test_sign_in_leads_to_no_other_site(shop: Catalog) -> None:
    with (
        serving(shop, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)

        def check(text: str) -> None:
            assert lands_at(site, text) == "/"
            shown = site.get(f"/login?{urlencode({'next': text})}").text
            assert 'name="next" value="/"' in shown

        check_each(ELSEWHERE, check)
        for text in ("/%2F/evil.example", "/%5Cevil.example", "/@evil.example", "/..//evil"):
            assert (
                urlsplit(urljoin(served.address, lands_at(site, text))).netloc
                == urlsplit(served.address).netloc
            )
        site.post("/logout")
        for path in ("//evil.example", "/%2F/evil", "/%5Cevil.example"):
            assert "evil" not in site.get(served.address + path).headers.get("location", "")


def test_page_of_a_console_without_sign_in_links_to_the_form_and_back(site: Site) -> None:
    shown = site.get("/tables/orders?x=1&y=2").text
    assert f'href="/login?next={quote("/tables/orders?x=1", safe="")}%26y%3D2"' in shown


@pytest.mark.parametrize(
    "options",
    [
        {"names": ["console.example"]},
        {"names": ["localhost", "console.example"], "allow_writes": True},
        {"token": TOKEN},
        {"token": TOKEN, "allow_writes": True},
    ],
)
def test_reads_need_the_token_if_a_host_name_or_token_is_set(
    shop: Catalog, options: dict[str, Any]
) -> None:
    with (
        serving(shop, **options) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        assert served.token_to_read
        assert served.is_token_generated == ("token" not in options)
        assert served.is_reachable == ("names" in options)
        for host in ("localhost", *options.get("names", ())):
            shown = site.get("/tables/orders", headers={"Host": host})
            assert leads_to_sign_in(shown, "/tables/orders")
        assert site.get("/metrics").status_code == 401
        site.log_in()
        shown = site.get("/tables/orders")
        assert shown.status_code == 200
        assert "Sign out" in shown.text


def test_reading_through_a_local_host_name_needs_no_token(shop: Catalog) -> None:
    with (
        serving(shop, names=["localhost", "127.0.0.2"]) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        assert (served.token, served.token_to_read, served.is_reachable) == (None, False, False)
        assert client.get("/tables/orders").status_code == 200


def test_cookie_is_secure_behind_tls(read_only: Site) -> None:
    assert "secure" not in read_only.get("/login").headers["set-cookie"].lower()
    behind = {"X-Forwarded-Proto": "https", "Cookie": ""}
    assert "secure" in read_only.get("/login", headers=behind).headers["set-cookie"].lower()


def test_form_above_the_size_limit_is_rejected(read_only: Site) -> None:
    assert read_only.post("/sql", {"sql": "x" * 300_000}).status_code == 413


def test_console_with_writes_needs_a_token(shop: Catalog) -> None:
    with pytest.raises(ValueError, match="needs a token"):
        Console(shop, allow_writes=True)
    with serving(shop, allow_writes=True) as served:
        assert served.is_token_generated
        assert served.token is not None
        assert len(served.token) >= 32
    assert deltasql.__version__


@contextmanager
def behind_proxy(shop: Catalog, **options: Any) -> Iterator[Site]:
    """Serve a console whose users a reverse proxy signs in."""
    with (
        serving(shop, user_header="X-Forwarded-User", operators=["olga"], **options) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        yield Site(served, shop, client)


def test_users_of_the_proxy_read_and_only_operators_write(shop: Catalog) -> None:
    before = shop.table("orders").version()
    with behind_proxy(shop, allow_writes=True) as site:
        assert site.served.token is None
        for path in READS:
            assert leads_to_sign_in(site.get(path), path), path
        assert site.get("/metrics").status_code == 401
        assert site.client.post("/sql", data={"sql": "1"}).headers["location"] == "/login"
        assert all(site.client.post(path).status_code == 403 for path in WRITES)
        assert "Open it through the proxy" in site.get("/login").text
        site.client.headers["X-Forwarded-User"] = "rita"
        for path in READS:
            assert site.get(path).status_code == 200, path
        assert "rita" in site.get("/").text
        assert "--operator rita" in site.get("/maintenance/orders").text
        for path in WRITES:
            refused = site.post(path, {"confirm": "yes", "version": "1"})
            assert refused.status_code == 403, path
            assert "You may only read" in refused.text
        assert shop.table("orders").version() == before
        assert shop.inspect.audit_log().items == ()
        site.client.headers["X-Forwarded-User"] = "olga"
        assert "Writes allowed" in site.get("/").text
        job = site.post("/maintenance/orders/optimize").headers["location"]
        while 'data-state="running"' in site.get(job).text:
            time.sleep(0.1)
        assert [each.user for each in shop.inspect.audit_log().items] == ["olga"]


def test_operators_write_only_if_the_console_allows_writes(shop: Catalog) -> None:
    with behind_proxy(shop) as site:
        site.client.headers["X-Forwarded-User"] = "olga"
        assert "Read-only" in site.get("/").text
        for path in WRITES:
            assert site.post(path, {"confirm": "yes"}).status_code == 403, path


def test_user_header_counts_only_from_the_proxy(shop: Catalog) -> None:
    with behind_proxy(shop, allow_writes=True, proxies=["10.0.0.7"]) as site:
        site.client.headers["X-Forwarded-User"] = "olga"
        assert site.get("/").headers["location"] == "/login"
        assert site.client.post(WRITES[0]).status_code == 403
    with serving(shop) as served:  # without --user-header
        shown = httpx.get(served.address, headers={"X-Forwarded-User": "olga"}).text
        assert "olga" not in shown


def test_proxy_does_not_replace_the_check_of_forms(shop: Catalog) -> None:
    with behind_proxy(shop, allow_writes=True) as site:
        site.client.headers["X-Forwarded-User"] = "olga"
        for path in WRITES:
            assert site.client.post(path, data={"confirm": "yes"}).status_code == 403, path
            evil = {"Origin": "https://evil.example"}
            assert site.post(path, {"confirm": "yes"}, headers=evil).status_code == 403, path


def test_bundled_editor_has_the_checksum_that_its_build_script_recorded() -> None:
    root = Path(__file__).parents[2]
    static = root / "python" / "deltasql" / "console" / "static"
    (checksum, name) = (root / "editor" / "editor.sha256").read_text().split()
    assert hashlib.sha256((static / name).read_bytes()).hexdigest() == checksum
    license_text = (static / "editor.LICENSE.txt").read_text()
    wanted = json.loads((root / "editor" / "package.json").read_text())["dependencies"]
    for package, version in wanted.items():
        assert package == "esbuild" or f"\n{package} {version}\n" in license_text, package
