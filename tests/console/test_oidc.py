"""Sign-in with OpenID Connect; oidc-provider runs as a real provider in a separate process."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import pytest
from click.testing import CliRunner

from deltasql.cli.main import main
from deltasql.console.console import WRITE
from deltasql.console.oidc import EXPIRED, OidcSettings
from deltasql.console.server import serving
from deltasql.exceptions import TxnLogConfigError
from tests.console.conftest import TOKEN, Site
from tests.console.test_actions import finished
from tests.console.test_security import ELSEWHERE, leads_to_sign_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

needs_provider = pytest.mark.everything("npm fetches oidc-provider")
WRITES = [path.replace("{name}", "orders") for path, _ in WRITE]
SECRET = "a-secret-of-the-tests"
PORTS = (8461, 8462)
"""The provider knows the addresses of the consoles before they start."""


@pytest.fixture
def backend() -> str:
    """Use SQLite only: access control does not depend on the backend."""
    return "sqlite"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a provider, and yield its issuer."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are needed to run oidc-provider: install the package npm")
    folder = tmp_path_factory.mktemp("provider")
    shutil.copytree(Path(__file__).parent / "provider", folder, dirs_exist_ok=True)
    subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
    hosts = [f"http://127.0.0.1:{port}" for port in PORTS]
    process = subprocess.Popen(
        ["node", "provider.mjs", *hosts, "https://console.example.com"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@contextmanager
def console(shop: Catalog, issuer: str, port: int = PORTS[0], **options: Any) -> Iterator[Site]:
    """Serve a console whose users the provider signs in."""
    roles = {"operators": frozenset({"operators"}), "readers": frozenset({"staff"})}
    chosen = {"client_id": "console", "client_secret": SECRET, "scopes": ("groups",), **roles}
    settings = OidcSettings(issuer=issuer, **{**chosen, **options})
    with (
        serving(shop, port=port, oidc=settings, allow_writes=True) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        yield Site(served, shop, client)


def at_provider(address: str, user: str) -> str:
    """Sign in at the provider like a browser; return the address to which it sends the browser."""
    with httpx.Client(timeout=60) as browser:
        while "/oidc/callback" not in address:
            shown = browser.get(address)
            if shown.is_redirect:
                address = str(shown.next_request.url)  # type: ignore[union-attr]
                continue
            prompt = shown.text.split('name="prompt" value="')[1].split('"')[0]
            form = {"prompt": prompt, "login": user, "password": "any"}
            address = str(browser.post(address, data=form).next_request.url)  # type: ignore[union-attr]
    return address


def begin(site: Site, asked: str = "/") -> str:
    """Start a sign-in from a page, and return the address at the provider."""
    started = site.get(f"/oidc/login?{urlencode({'next': asked})}")
    assert started.status_code in (302, 303), started.text
    return started.headers["location"]


def open_callback(site: Site, address: str) -> httpx.Response:
    """Open the callback URL."""
    place = urlsplit(address)
    return site.get(f"{place.path}?{place.query}")


def sign_in(site: Site, user: str) -> httpx.Response:
    return open_callback(site, at_provider(begin(site), user))


def changed(address: str, **values: str) -> str:
    """Return an address with other parameters."""
    place = urlsplit(address)
    return place._replace(query=urlencode({**dict(parse_qsl(place.query)), **values})).geturl()


@needs_provider
def test_roles_come_from_the_claim_and_are_enforced(shop: Catalog, issuer: str) -> None:
    before = shop.table("orders").version()
    with console(shop, issuer) as site:
        assert site.served.token is None
        for path in ("/", "/tables/orders", "/sql", "/audit"):
            assert leads_to_sign_in(site.get(path), path)
        assert site.get("/metrics").status_code == 401
        assert "/oidc/login" in site.get("/login").text
        assert "You are signed in as rita@example.com" in sign_in(site, "rita").text
        shown = site.get("/").text
        assert "rita@example.com" in shown
        assert "Read-only" in shown
        assert "deltasql ui --operator" in site.get("/maintenance/orders").text
        for path in WRITES:
            refused = site.post(path, {"confirm": "yes", "version": "1"})
            assert refused.status_code == 403, path
            assert "You may only read" in refused.text
        assert shop.table("orders").version() == before
        assert site.post("/logout").status_code == 303
        assert site.get("/").headers["location"] == "/login"
        sign_in(site, "olga")
        assert "Writes allowed" in site.get("/").text
        assert site.client.post(WRITES[0], data={"confirm": "yes"}).status_code == 403  # no CSRF
        finished(site, site.post("/maintenance/orders/optimize").headers["location"])
        users = [each.user for each in shop.inspect.audit_log().items]
        assert users == ["olga@example.com"]


@needs_provider
def test_users_without_a_role_are_told_why(shop: Catalog, issuer: str) -> None:
    with console(shop, issuer) as site:
        refused = sign_in(site, "nemo")
        assert refused.status_code == 403
        assert "sent no claim groups for nemo@example.com" in refused.text
        assert "--oidc-claim" in refused.text
        refused = sign_in(site, "gus")  # the provider did not verify the address of gus
        assert refused.status_code == 403
        assert "gus may not use this console" in refused.text
        assert site.get("/").headers["location"] == "/login"
    with console(shop, issuer, readers=frozenset()) as site:
        sign_in(site, "gus")
        assert "Read-only" in site.get("/").text
    with console(shop, issuer, readers=frozenset()) as site:
        sign_in(site, "nemo")  # has no groups
        assert "Read-only" in site.get("/").text


@needs_provider
def test_email_that_the_provider_did_not_verify_gives_no_role(shop: Catalog, issuer: str) -> None:
    operators = frozenset({"olga@example.com"})
    with console(shop, issuer, claim="email", operators=operators) as site:
        refused = sign_in(site, "gus")  # entered the address of olga
        assert refused.status_code == 403
    with console(shop, issuer, claim="email", operators=operators) as site:
        sign_in(site, "olga")
        assert "Writes allowed" in site.get("/").text


@needs_provider
def test_client_without_secret_signs_in_with_pkce(shop: Catalog, issuer: str) -> None:
    with console(shop, issuer, client_id="public", client_secret=None) as site:
        asked = parse_qs(urlsplit(address := begin(site)).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert asked["response_type"] == ["code"]
        assert len(asked["state"][0]) >= 20
        assert len(asked["nonce"][0]) >= 20
        assert open_callback(site, at_provider(address, "olga")).status_code == 200
        assert "Writes allowed" in site.get("/").text
    with console(shop, issuer, client_secret="wrong") as site:
        refused = sign_in(site, "olga")
        assert refused.status_code == 403
        assert "refused the sign-in: invalid_client" in refused.text


@needs_provider
def test_forged_answers_are_rejected(shop: Catalog, issuer: str) -> None:
    with console(shop, issuer) as site:

        def is_rejected(answer: httpx.Response, message: str) -> None:
            assert answer.status_code in (400, 403)
            assert message in answer.text
            assert site.get("/").headers["location"] == "/login"

        answer = at_provider(begin(site), "olga")
        is_rejected(open_callback(site, changed(answer, state="x" * 30)), EXPIRED)
        is_rejected(site.get("/oidc/callback"), EXPIRED)
        text = {"error": "access_denied", "error_description": "call 555-0100"}
        assert "555-0100" not in site.get(f"/oidc/callback?{urlencode(text)}").text
        # The ID token was issued for another request.
        answer = at_provider(changed(begin(site), nonce="y" * 30), "olga")
        is_rejected(open_callback(site, answer), "ID token")
        # The authorization code was issued for another PKCE verifier.
        stolen = parse_qs(urlsplit(at_provider(begin(site), "olga")).query)["code"][0]
        answer = at_provider(begin(site), "rita")
        is_rejected(open_callback(site, changed(answer, code=stolen)), "invalid_grant")
        # Another browser started the sign-in.
        answer = at_provider(begin(site), "olga")
        with httpx.Client(base_url=site.served.address) as other:
            is_rejected(open_callback(Site(site.served, shop, other), answer), EXPIRED)
        # The user denied consent at the provider.
        refused = at_provider_refused(begin(site))
        is_rejected(open_callback(site, refused), "access_denied")
        # The callback URL works once.
        answer = at_provider(begin(site), "olga")
        assert open_callback(site, answer).status_code == 200
        site.post("/logout")
        is_rejected(open_callback(site, answer), EXPIRED)


def at_provider_refused(address: str) -> str:
    """Abort at the provider; return the address to which it sends the browser."""
    with httpx.Client(timeout=60) as browser:
        page = str(browser.get(address).next_request.url)  # type: ignore[union-attr]
        address = f"{page}/abort"
        while "/oidc/callback" not in address:
            address = str(browser.get(address).next_request.url)  # type: ignore[union-attr]
    return address


@needs_provider
def test_sign_in_leads_to_the_page_that_was_asked_for(shop: Catalog, issuer: str) -> None:
    with console(shop, issuer) as site:
        asked = "/tables/orders/rows?order=id&desc=1"
        page = site.get(site.get(asked).headers["location"]).text
        link = unescape(page.split('href="/oidc/login')[1].split('"')[0])
        assert dict(parse_qsl(link.removeprefix("?"))) == {"next": asked}
        for wanted, found in (
            (asked, asked),
            ("/sql?q=" + "a" * 3000, "/"),  # too long for the cookie
            *((text, "/") for text in ELSEWHERE[:6]),
        ):
            shown = open_callback(site, at_provider(begin(site, wanted), "rita")).text
            assert f'content="0; url={escape(found)}"' in shown, wanted
        # Another console, or this one after a restart, does not accept the cookie.
        answer = at_provider(begin(site), "rita")
        cookies = dict(site.client.cookies)
    with console(shop, issuer) as site:
        site.client.cookies.update(cookies)
        assert EXPIRED in open_callback(site, answer).text


@dataclass(frozen=True)
class Later:
    """The clock of one module, some seconds ahead."""

    seconds: float

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds


@needs_provider
def test_expired_sign_ins_and_sessions_are_rejected(
    shop: Catalog, issuer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with console(shop, issuer) as site:
        answer = at_provider(begin(site), "olga")
        real = time.time  # the cookies of the client live for ten minutes
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: real() + 300)
            refused = open_callback(site, answer)
        assert refused.status_code == 403
        assert "has expired: sign in again, and check the clocks" in refused.text
        answer = at_provider(begin(site), "olga")
        with monkeypatch.context() as patch:
            patch.setattr("deltasql.console.oidc.time", Later(601))
            assert EXPIRED in open_callback(site, answer).text
        sign_in(site, "olga")
        assert site.get("/").status_code == 200
        with monkeypatch.context() as patch:
            patch.setattr("deltasql.console.security.time", Later(12 * 3600 + 1))
            assert site.get("/").headers["location"] == "/login"


@needs_provider
def test_cookies_are_strict_and_secure_behind_tls(shop: Catalog, issuer: str) -> None:
    settings = OidcSettings(issuer=issuer, client_id="console", client_secret=SECRET)
    with (
        serving(shop, oidc=settings, names=["console.example.com"]) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        client.headers.update({"Host": "console.example.com", "X-Forwarded-Proto": "https"})
        started = site.get("/oidc/login")
        address = started.headers["location"]
        cookies = started.headers.get_list("set-cookie")
        (login,) = [each for each in cookies if each.startswith("deltasql_console_sign_in")]
        assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/oidc"} <= set(login.split("; "))
        asked = parse_qs(urlsplit(address).query)
        assert asked["redirect_uri"] == ["https://console.example.com/oidc/callback"]
        # httpx does not send `Secure` cookies over plain HTTP.
        client.headers["Cookie"] = login.split(";")[0]
        signed_in = open_callback(site, at_provider(address, "rita"))
        assert signed_in.status_code == 200
        cookies = signed_in.headers.get_list("set-cookie")
        (deleted,) = [each for each in cookies if "Max-Age=0" in each]
        assert deleted.startswith(f"{login.split('=')[0]}=")
        (session,) = [each for each in cookies if each != deleted]
        assert {"HttpOnly", "Secure", "SameSite=strict"} <= set(session.split("; "))


def test_error_page_names_a_provider_that_cannot_be_reached(shop: Catalog) -> None:
    settings = OidcSettings(issuer="http://127.0.0.1:1", client_id="console")
    with (
        serving(shop, oidc=settings, token=TOKEN) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        site = Site(served, shop, client)
        assert client.get("/").headers["location"] == "/login"
        failed = client.get("/oidc/login")
        assert failed.status_code == 503
        assert "The provider http://127.0.0.1:1 cannot be reached" in failed.text
        assert EXPIRED in client.get("/oidc/callback?code=1&state=2").text
        site.log_in()  # the token works without the provider
        assert client.get("/").status_code == 200
        # The server at this address answers, but it is not a provider.
        wrong = OidcSettings(issuer=served.address, client_id="console")
        with serving(shop, oidc=wrong) as other:
            failed = httpx.get(f"{other.address}/oidc/login")
            assert failed.status_code == 503
            assert "answered with status 404: check --oidc-issuer" in failed.text


def test_sign_in_pages_exist_only_if_a_provider_is_configured(shop: Catalog) -> None:
    with serving(shop) as served:
        assert httpx.get(f"{served.address}/oidc/login").status_code == 404
        assert httpx.get(f"{served.address}/oidc/callback").status_code == 404


@pytest.mark.parametrize("issuer", ["http://sso.example.com", "sso.example.com", "ftp://[::1]"])
def test_issuer_must_use_tls(issuer: str) -> None:
    with pytest.raises(TxnLogConfigError, match="https://"):
        OidcSettings(issuer=issuer, client_id="console")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--operator", "a"], "--operator needs --user-header or --oidc-issuer"),
        (["--reader", "a"], "--reader need --oidc-issuer"),
        (["--oidc-issuer", "https://sso.example.com"], "--oidc-issuer needs --oidc-client-id"),
        (
            ["--oidc-issuer", "https://sso.example.com", "--user-header", "X"],
            "Give --user-header or --oidc-issuer, not both",
        ),
    ],
)
def test_options_that_contradict_each_other_are_rejected(
    sqlite_uri: DeltaSqlUri, options: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["--uri", str(sqlite_uri), "ui", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
