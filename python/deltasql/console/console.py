"""The web console of one catalog: its routes and the access rules of each."""

from __future__ import annotations

import logging
import secrets
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
    health,
    history,
    maintenance,
    metrics,
    mirror,
    overview,
    session,
    sql,
    table,
    transactions,
    travel,
)
from deltasql.console.request import PageRequest
from deltasql.console.security import HEADERS, LOOPBACK, Gate, remember
from deltasql.console.state import ConsoleState
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

    Page = Callable[[PageRequest], Response]
    Endpoint = Callable[[Request], Awaitable[Response]]

_log = logging.getLogger(__name__)
_HERE = Path(__file__).parent
_LARGEST_FORM = 256 * 1024
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
    ("/", overview.show),
    ("/tables/{name}", table.summary),
    ("/tables/{name}/history", history.show),
    ("/tables/{name}/files", table.files),
    ("/tables/{name}/figures", table.figures),
    ("/tables/{name}/schema", table.schema),
    ("/tables/{name}/travel", travel.show),
    ("/transactions", transactions.show),
    ("/transactions/{txn_id}", transactions.one),
    ("/mirror", mirror.show),
    ("/mirror/{name}", mirror.one),
    ("/maintenance", maintenance.show),
    ("/maintenance/{name}", maintenance.one),
    ("/jobs/{job_id}", maintenance.job),
    ("/sql", sql.show),
    ("/health", health.show),
)
WRITE: tuple[tuple[str, Page], ...] = (
    ("/mirror/{name}/retry", mirror.retry),
    ("/maintenance/{name}/optimize", maintenance.optimize),
    ("/maintenance/{name}/vacuum", maintenance.vacuum),
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
    ) -> None:
        if (allow_writes or token_to_read) and not token:
            raise ValueError(
                "a console that allows writes, or that other machines can reach, needs a token"
            )
        self.state = ConsoleState(
            catalog,
            Gate(token=token, hosts=hosts, token_to_read=token_to_read),
            _templates(),
            allows_writes=allow_writes,
        )

    def application(self) -> Starlette:
        """Return the ASGI application."""
        routes: list[Route | Mount] = [
            *(Route(path, self._reading(page)) for path, page in READ),
            *(Route(path, self._writing(page), methods=["POST"]) for path, page in WRITE),
            Route("/sql", self._sending(sql.run), methods=["POST"]),
            Route("/login", self._open(session.show)),
            Route("/login", self._sending(session.enter, is_open=True), methods=["POST"]),
            Route("/logout", self._sending(session.leave), methods=["POST"]),
            Route("/metrics", self._endpoint(metrics.show, self._refuse_program)),
            Mount("/static", StaticFiles(directory=_HERE / "static")),
        ]
        application = Starlette(
            routes=routes, exception_handlers={HTTPException: self._failed, Exception: self._broken}
        )
        application.add_middleware(_Guarded, console=self)
        return application

    # Access rules of pages, from the least to the most restrictive

    def _open(self, page: Page) -> Endpoint:
        return self._endpoint(page, lambda ask: None)

    def _reading(self, page: Page) -> Endpoint:
        return self._endpoint(page, self._refuse_reader)

    def _sending(self, page: Page, *, is_open: bool = False) -> Endpoint:
        def refuse(ask: PageRequest) -> Response | None:
            refused = None if is_open else self._refuse_reader(ask)
            return refused or self._refuse_foreign(ask)

        return self._endpoint(page, refuse)

    def _writing(self, page: Page) -> Endpoint:
        def refuse(ask: PageRequest) -> Response | None:
            refused = self._refuse_foreign(ask)
            if refused is None and not self.state.allows_writes:
                raise HTTPException(
                    403, "This console is read-only. Start it with deltasql ui --allow-writes."
                )
            if refused is None and not ask.visitor.has_token:
                return ask.go("/login")
            return refused

        return self._endpoint(page, refuse)

    def _refuse_reader(self, ask: PageRequest) -> Response | None:
        if self.state.gate.token_to_read and not ask.visitor.has_token:
            return ask.go("/login")
        return None

    def _refuse_program(self, ask: PageRequest) -> Response | None:
        if (
            not self.state.gate.token_to_read
            or ask.visitor.has_token
            or self.state.gate.bearer(ask.request)
        ):
            return None
        raise HTTPException(401, "Give the token as Authorization: Bearer …")

    def _refuse_foreign(self, ask: PageRequest) -> Response | None:
        is_deltasql = self.state.gate.is_from_here(ask.request)
        if not is_deltasql or not self.state.gate.is_csrf(ask.visitor, ask.form.get("csrf", "")):
            raise HTTPException(403, "This form is out of date. Go back, reload, try again.")
        return None

    def _endpoint(self, page: Page, refuse: Callable[[PageRequest], Response | None]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            form = await _form(request)
            ask = PageRequest(self.state, request, self.state.gate.visitor(request), form)
            response = await run_in_threadpool(self._answer, ask, page, refuse)
            if ask.visitor.is_new and "set-cookie" not in response.headers:
                remember(request, response, ask.visitor)
            return response

        return endpoint

    def _answer(
        self, ask: PageRequest, page: Page, refuse: Callable[[PageRequest], Response | None]
    ) -> Response:
        try:
            return refuse(ask) or page(ask)
        except HTTPException:
            raise
        except TxnLogError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            if status == 500:
                _log.error("page failed: %s", ask.request.url.path, exc_info=error)
            return ask.error_page(status, error.message or str(error), error.help)
        except BadRequest as error:  # an invalid cursor or number in the URL
            return ask.error_page(400, str(error))
        except Exception as error:
            return _broke(ask, error)

    async def _failed(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        ask = PageRequest(self.state, request, self.state.gate.visitor(request), {})
        message = "There is no such page." if error.status_code == 404 else error.detail
        return ask.error_page(error.status_code, message)

    async def _broken(self, request: Request, error: Exception) -> Response:
        return _broke(PageRequest(self.state, request, self.state.gate.visitor(request), {}), error)


def _broke(ask: PageRequest, error: Exception) -> Response:
    """Log an unexpected error under a number, and show that number to the user."""
    number = secrets.token_hex(4)
    _log.error("page failed: %s (%s)", ask.request.url.path, number, exc_info=error)
    return ask.error_page(
        500, f"Something went wrong. The log of the console has the details: {number}."
    )


class _Guarded:
    """Refuses unknown Host headers, and adds the security headers to every response."""

    def __init__(self, app: ASGIApp, console: Console) -> None:
        self._app, self._console = app, console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if scope["type"] == "http" and not self._console.state.gate.knows_host(Request(scope)):
            refusal = PlainTextResponse("This console does not answer to that host name.", 421)
            await refusal(scope, receive, guarded)
            return
        await self._app(scope, receive, guarded)


async def _form(request: Request) -> dict[str, str]:
    if request.method != "POST":
        return {}
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM:
            raise HTTPException(413, "The form is too large.")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100))
    except ValueError as error:
        raise HTTPException(400, "The request body is not a valid form.") from error


def _sql_name(table: CatalogTable) -> str:
    """Return a table's name as it is written in a query."""
    return sql.written(table.namespace, table.name)


def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for show in (units.size, units.count, units.brief, units.duration, units.age, units.moment):
        environment.filters[show.__name__] = show
    environment.filters.update(
        percent=units.percent,
        address=overview.address,
        short=overview.short,
        quoted=overview.quoted,
        cell=cell,
        many=many,
        masked=masked,
        redact=redact,
    )
    environment.globals.update(
        charts=charts, release=__version__, describe=history.describe, sql_name=_sql_name
    )
    return environment
