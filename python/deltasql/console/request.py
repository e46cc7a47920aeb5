"""One request to a page: its parameters, its visitor and its responses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse

from deltasql.exceptions import redact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.security import Visitor
    from deltasql.console.state import ConsoleState


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request to a page."""

    state: ConsoleState
    request: Request
    visitor: Visitor
    form: Mapping[str, str]

    @property
    def catalog(self) -> Catalog:
        return self.state.catalog

    @property
    def may_write(self) -> bool:
        """Whether this visitor may start maintenance and publish."""
        return self.state.allows_writes and self.visitor.has_token

    @property
    def name(self) -> str:
        """The table name in the URL path."""
        return str(self.request.path_params["name"])

    def text(self, name: str, default: str = "") -> str:
        """Return a query parameter without surrounding spaces."""
        return self.request.query_params.get(name, default).strip()

    def number(self, name: str, default: int, *, low: int = 0, high: int = 2**53) -> int:
        """Return a query parameter as an integer; respond with status 400 if it is out of range."""
        given = self.text(name)
        if not given:
            return default
        if not given.isdecimal() or len(given) > 20 or not low <= int(given) <= high:
            raise HTTPException(400, f"{name} is a number from {low:,} to {high:,}")
        return int(given)

    def choice(self, name: str, *options: str) -> str:
        """Return a query parameter that must be one of the options; the first is the default."""
        given = self.text(name, options[0])
        if given not in options:
            raise HTTPException(400, f"{name} is one of {', '.join(options)}")
        return given

    def cursor(self) -> str | None:
        """Return the cursor of the next page of a list."""
        return self.text("cursor") or None

    def with_parameters(self, **changes: object) -> str:
        """Return the URL of this page with other parameters; None removes one.

        The parameter `part` is removed, because links in a part of a page open whole pages.
        """
        kept = {**self.request.query_params, "part": None, **changes}
        written = urlencode({key: value for key, value in kept.items() if value is not None})
        path: str = self.request.scope["raw_path"].decode("latin-1")
        return f"{path}?{written}" if written else path

    def page(self, template: str, status: int = 200, **values: Any) -> Response:
        """Render a page."""
        shown = self.state.templates.get_template(template).render(ask=self, **values)
        return HTMLResponse(shown, status_code=status)

    def error_page(self, status: int, message: str, hint: str | None = None) -> Response:
        """Render an error page; secrets in the message are redacted."""
        return self.page("error.html", status, code=status, message=redact(message), hint=hint)

    def go(self, address: str) -> Response:
        """Redirect the browser to another page with a GET request."""
        return RedirectResponse(address, status_code=303)
