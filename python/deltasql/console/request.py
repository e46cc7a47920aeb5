"""One request to a page, and the state that all requests share."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from deltasql.console.jobs import Jobs
from deltasql.console.security import Role, local_path
from deltasql.engine.query_limits import Interrupt
from deltasql.exceptions import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    import jinja2
    from starlette.requests import Request
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.inspect.doctor import DoctorReport
    from deltasql.console.security import AccessControl, Visitor

_KEEP_REPORT_S = 30.0


class DoctorReports:
    """The latest report of `doctor`, which all visitors share, because running it is slow."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._latest: DoctorReport | None = None
        self._expires_at = 0.0

    def latest(self, catalog: Catalog) -> DoctorReport:
        """Return a report that is at most half a minute old."""
        with self._guard:
            if self._latest is None or time.monotonic() >= self._expires_at:
                self._latest = catalog.inspect.doctor()
                self._expires_at = time.monotonic() + _KEEP_REPORT_S
            return self._latest


@dataclass(frozen=True, slots=True)
class ConsoleState:
    """The catalog of a console, its access control, its templates and its jobs."""

    catalog: Catalog
    access: AccessControl
    templates: jinja2.Environment
    allows_writes: bool = False
    import_from: tuple[str, ...] = ()
    """Operators may import and follow logs below these locations."""
    jobs: Jobs = field(default_factory=Jobs)
    reports: DoctorReports = field(default_factory=DoctorReports)


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request to a page."""

    state: ConsoleState
    http: Request
    """The HTTP request that Starlette received."""
    visitor: Visitor
    form: Mapping[str, str]
    interrupt: Interrupt = field(default_factory=Interrupt)
    """Cancels the query of this request when the browser closes the connection."""

    @property
    def catalog(self) -> Catalog:
        return self.state.catalog

    @property
    def may_write(self) -> bool:
        """Whether this visitor may run actions."""
        return self.state.allows_writes and self.visitor.role is Role.OPERATOR

    @property
    def name(self) -> str:
        """The table name in the URL path."""
        return str(self.http.path_params["name"])

    def text(self, name: str, default: str = "") -> str:
        """Return a query parameter without surrounding spaces."""
        return self.http.query_params.get(name, default).strip()

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**53) -> int:
        """Return a query parameter as an integer; respond with status 400 if it is out of range."""
        given = self.text(name)
        if not given:
            return default
        if not given.isdecimal() or len(given) > 20 or not low <= int(given) <= high:
            raise HTTPException(400, f"{name} must be a number from {low:,} to {high:,}")
        return int(given)

    def choice(self, name: str, *options: str) -> str:
        """Return a query parameter that must be one of the options; the first is the default."""
        given = self.text(name, options[0])
        if given not in options:
            raise HTTPException(400, f"{name} must be one of {', '.join(options)}")
        return given

    def cursor(self) -> str | None:
        """Return the cursor of the next page of a list."""
        return self.text("cursor") or None

    def with_parameters(self, **changes: object) -> str:
        """Return the URL of this page with other parameters; None removes one.

        The parameter `part` is removed, because links in a part of a page open whole pages.
        """
        kept = {**self.http.query_params, "part": None, **changes}
        written = urlencode({key: value for key, value in kept.items() if value is not None})
        path: str = self.http.scope["raw_path"].decode("latin-1")
        return f"{path}?{written}" if written else path

    def given(self, name: str, default: str = "") -> str:
        """Return a field of the form, or a query parameter if no form was sent."""
        found = self.form if self.http.method == "POST" else self.http.query_params
        return found.get(name, default)

    @property
    def next_page(self) -> str:
        """The page that was asked for before the sign-in."""
        return local_path(self.given("next", "/"))

    @property
    def sign_in_page(self) -> str:
        """The page for signing in, which then leads to the page of this request."""
        asked = local_path(self.with_parameters()) if self.http.method == "GET" else "/"
        return "/login" if asked == "/" else f"/login?{urlencode({'next': asked})}"

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page."""
        shown = self.state.templates.get_template(template).render(request=self, **values)
        return HTMLResponse(shown, status_code=status)

    def error_page(self, status: int, message: str, hint: str | None = None) -> Response:
        """Render an error page; secrets in the message are redacted."""
        return self.page("error.html", status, code=status, message=redact(message), hint=hint)

    def go(self, address: str) -> Response:
        """Redirect the browser to another page with a GET request."""
        return RedirectResponse(address, status_code=303)
