"""The web console of one catalog: its routes and the access rules of each."""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from deltasql.exceptions import MissingDriverError
from deltasql.model.counts import many

try:
    import jinja2
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.datastructures import MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError as missing:  # pragma: no cover - the extra is not installed
    raise MissingDriverError(driver="starlette", extra="console") from missing

from deltasql._core import __version__
from deltasql.api.inspect.page import BadRequest
from deltasql.console import charts, units
from deltasql.console.pages import (
    audit,
    health,
    history,
    job,
    maintenance,
    migration,
    mirror,
    rows,
    sql,
    table,
    travel,
)
from deltasql.console.request import ConsoleState, PageRequest
from deltasql.console.security import (
    HEADERS,
    LOOPBACK,
    AccessControl,
    ProxySignIn,
    Role,
    local_path,
    set_session_cookie,
)
from deltasql.console.values import cell, masked
from deltasql.exceptions import (
    StoreBusyError,
    StoreUnavailableError,
    TxnLogEngineError,
    TxnLogError,
    TxnLogSchemaError,
    TxnLogTableNotFoundError,
    TxnLogUriError,
    VersionNotFoundError,
    redact,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.oidc import OidcSignIn

    Page = Callable[[PageRequest], Response]
    Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger(__name__)
_HERE = Path(__file__).parent
_MAX_FORM_BYTES = 256 * 1024
_WATCH_S = 0.25
_STATUS = (
    (TxnLogTableNotFoundError, 404),
    (VersionNotFoundError, 404),
    (TxnLogUriError, 404),  # not a valid table name
    (TxnLogSchemaError, 400),
    (TxnLogEngineError, 400),
    (StoreUnavailableError, 503),
    (StoreBusyError, 503),
)
READ: tuple[tuple[str, Page], ...] = (
    ("/", table.overview),
    ("/tables/{name}", table.summary),
    ("/tables/{name}/rows", rows.show),
    ("/tables/{name}/history", history.show),
    ("/tables/{name}/versions/{version:int}", history.commit),
    ("/tables/{name}/files", table.files),
    ("/tables/{name}/figures", table.figures),
    ("/tables/{name}/schema", table.schema),
    ("/tables/{name}/travel", travel.show),
    ("/transactions", history.transactions),
    ("/transactions/{txn_id}", history.transaction),
    ("/mirror", mirror.show),
    ("/mirror/{name}", mirror.one),
    ("/maintenance", maintenance.show),
    ("/maintenance/{name}", maintenance.one),
    ("/migration", migration.show),
    ("/migration/{name}", migration.one),
    ("/jobs/{job_id}", job.show),
    ("/sql", sql.show),
    ("/sql/schema", sql.schema),
    ("/audit", audit.show),
    ("/health", health.show),
)
WRITE: tuple[tuple[str, Page], ...] = (
    ("/mirror/{name}/retry", mirror.retry),
    ("/maintenance/{name}/optimize", maintenance.optimize),
    ("/maintenance/{name}/vacuum", maintenance.vacuum),
    ("/maintenance/{name}/undo", maintenance.undo),
    ("/migrate", migration.bring_in),
    ("/migration/{name}/refresh", migration.refresh),
    ("/migration/{name}/cutover", migration.cutover),
    ("/migration/{name}/rollback", migration.rollback),
)


class Console:
    """The console of one catalog, as an ASGI application."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        token: str | None = None,
        allow_writes: bool = False,
        hosts: Iterable[str] = LOOPBACK,
        token_to_read: bool = False,
        proxy: ProxySignIn | None = None,
        oidc: OidcSignIn | None = None,
        import_from: Iterable[str] = (),
    ) -> None:
        signs_in = token or proxy is not None or oidc is not None
        if (allow_writes or token_to_read) and not signs_in:
            raise ValueError(
                "a console that allows writes, or that other machines can reach, needs a token"
            )
        self.state = ConsoleState(
            catalog,
            AccessControl(
                token=token, hosts=hosts, token_to_read=token_to_read, proxy=proxy, oidc=oidc
            ),
            _templates(),
            allows_writes=allow_writes,
            import_from=tuple(import_from),
        )

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes: list[Route | Mount] = [
            *(Route(path, self._reading(page)) for path, page in READ),
            *(Route(path, self._writing(page), methods=["POST"]) for path, page in WRITE),
            Route("/sql", self._sending(sql.run), methods=["POST"]),
            Route("/login", self._open(_show_login)),
            Route("/login", self._sending(_sign_in, is_open=True), methods=["POST"]),
            Route("/oidc/login", self._open(_send_to_provider)),
            Route("/oidc/callback", self._open(_sign_in_by_provider)),
            Route("/logout", self._sending(_sign_out), methods=["POST"]),
            Route("/metrics", self._endpoint(health.metrics, self._check_bearer_token)),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]
        application = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._failed, Exception: self._unexpected},
        )
        application.add_middleware(_Guarded, console=self)
        return application

    # Access rules of pages, from the least to the most restrictive

    def _open(self, page: Page) -> Endpoint:
        return self._endpoint(page, lambda request: None)

    def _reading(self, page: Page) -> Endpoint:
        return self._endpoint(page, self._check_reader)

    def _sending(self, page: Page, *, is_open: bool = False) -> Endpoint:
        def check(request: PageRequest) -> Response | None:
            response = None if is_open else self._check_reader(request)
            return response or self._check_form(request)

        return self._endpoint(page, check)

    def _writing(self, page: Page) -> Endpoint:
        def check(request: PageRequest) -> Response | None:
            response = self._check_form(request)
            if response is None and not self.state.allows_writes:
                raise HTTPException(
                    403, "This console is read-only. Start it with deltasql ui --allow-writes."
                )
            if response is None and request.visitor.role is None:
                return request.go("/login")
            if response is None and request.visitor.role is not Role.OPERATOR:
                raise HTTPException(
                    403,
                    "You may only read. `deltasql ui --operator` says who may run actions.",
                )
            return response

        return self._endpoint(page, check)

    def _check_reader(self, request: PageRequest) -> Response | None:
        if self.state.access.must_sign_in and request.visitor.role is None:
            return request.go(request.sign_in_page)
        return None

    def _check_bearer_token(self, request: PageRequest) -> Response | None:
        if (
            not self.state.access.must_sign_in
            or request.visitor.role is not None
            or self.state.access.has_bearer_token(request.http)
        ):
            return None
        raise HTTPException(401, "Give the token as Authorization: Bearer …")

    def _check_form(self, request: PageRequest) -> Response | None:
        is_same_origin = self.state.access.is_same_origin(request.http)
        if not is_same_origin or not self.state.access.is_csrf_token(
            request.visitor, request.form.get("csrf", "")
        ):
            raise HTTPException(
                403, "This form is out of date. Go back, reload the page and send the form again."
            )
        return None

    def _endpoint(self, page: Page, check: Callable[[PageRequest], Response | None]) -> Endpoint:
        async def endpoint(http: Request) -> Response:
            form = await _form(http)
            request = PageRequest(self.state, http, self.state.access.visitor(http), form)
            watch = asyncio.create_task(_cancel_if_disconnected(request))
            try:
                response = await run_in_threadpool(self._respond, request, page, check)
            finally:
                watch.cancel()
            if request.visitor.is_new and "set-cookie" not in response.headers:
                set_session_cookie(http, response, request.visitor)
            return response

        return endpoint

    def _respond(
        self, request: PageRequest, page: Page, check: Callable[[PageRequest], Response | None]
    ) -> Response:
        try:
            return check(request) or page(request)
        except HTTPException:
            raise
        except TxnLogError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            if status == 500:
                _log.error("page failed: %s", request.http.url.path, exc_info=error)
            return request.error_page(status, error.message or str(error), error.help)
        except BadRequest as error:  # an invalid cursor or number in the URL
            return request.error_page(400, str(error))
        except Exception as error:
            return _internal_error(request, error)

    async def _failed(self, http: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        request = PageRequest(self.state, http, self.state.access.visitor(http), {})
        message = "There is no such page." if error.status_code == 404 else error.detail
        return request.error_page(error.status_code, message)

    async def _unexpected(self, http: Request, error: Exception) -> Response:
        return _internal_error(
            PageRequest(self.state, http, self.state.access.visitor(http), {}), error
        )


async def _cancel_if_disconnected(request: PageRequest) -> None:
    """Cancel the query of a request when the browser stops loading the page."""
    while not await request.http.is_disconnected():
        await asyncio.sleep(_WATCH_S)
    while True:
        request.interrupt.cancel()
        await asyncio.sleep(_WATCH_S)


def _show_login(request: PageRequest) -> Response:
    """Show how to sign in: a form for the token, or a link to the provider."""
    return request.page("login.html", problem=None)


def _sign_in(request: PageRequest) -> Response:
    """Start a session if the token is correct."""
    if not request.state.access.is_token(request.form.get("token", "").strip()):
        return request.page("login.html", 403, problem="Wrong token.")
    response = request.go(request.next_page)
    set_session_cookie(request.http, response, request.state.access.start_session())
    return response


def _send_to_provider(request: PageRequest) -> Response:
    """Redirect the browser to the OpenID Connect provider."""
    oidc = request.state.access.oidc
    if oidc is None:
        raise HTTPException(404)
    return _or_problem(request, lambda: oidc.begin(request.http, request.next_page))


def _sign_in_by_provider(request: PageRequest) -> Response:
    """Start a session for the user whom the provider signed in."""
    access = request.state.access
    oidc = access.oidc
    if oidc is None:
        raise HTTPException(404)

    def signed_in() -> Response:
        found = oidc.complete(request.http)
        # Answer with a page, not with a redirect: a redirect would continue a navigation from
        # another site, so browsers would not send the new cookie, which is SameSite=Strict.
        response = request.page(
            "signed_in.html", user=found.user, next_page=local_path(found.next_page)
        )
        set_session_cookie(request.http, response, access.start_session(found.user, found.role))
        return response

    response = _or_problem(request, signed_in)
    if response.status_code != 400:  # the answer belongs to the sign-in of this browser
        oidc.forget(request.http, response)
    return response


def _or_problem(request: PageRequest, respond: Callable[[], Response]) -> Response:
    from deltasql.console.oidc import SignInError  # lazy import: optional package

    try:
        return respond()
    except SignInError as error:
        _log.warning("sign-in failed: %r", str(error))
        return request.page("login.html", error.status, problem=redact(str(error)))


def _sign_out(request: PageRequest) -> Response:
    """End the session."""
    request.state.access.end_session(request.visitor)
    return request.go("/")


def _internal_error(request: PageRequest, error: Exception) -> Response:
    """Log an unexpected error with a number, and show that number to the user."""
    number = secrets.token_hex(4)
    _log.error("page failed: %s (%s)", request.http.url.path, number, exc_info=error)
    return request.error_page(
        500, f"Something went wrong. The log of the console has the details: {number}."
    )


class _Guarded:
    """Rejects requests with an unknown Host header, and adds security headers to every response."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app, self._console = app, console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http" and not self._console.state.access.allows_host(Request(scope)):
            refusal = PlainTextResponse("This console does not answer to that host name.", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


async def _form(http: Request) -> dict[str, str]:
    if http.method != "POST":
        return {}
    body = b""
    async for part in http.stream():
        body += part
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, "The request body is not a valid form.") from error


def _sql_name(table: CatalogTable) -> str:
    """Return a table's name as it is written in a query."""
    return sql.query_name(table.namespace, table.name)


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (units.size, units.count, units.brief, units.duration, units.age, units.timestamp):
        environment.filters[show.__name__] = show
    environment.filters.update(
        code_spans=units.code_spans,
        percent=units.percent,
        address=units.address,
        quoted=units.quoted,
        cell=cell,
        many=many,
        masked=masked,
        redact=redact,
        shell_quoted=shlex.quote,
    )
    environment.globals.update(
        charts=charts, release=__version__, describe=history.describe, sql_name=_sql_name
    )
    return environment
