"""Who may ask, and what a browser may do with the answer.

A page of somebody else must not reach the console through the browser of a person who has it
open. So the Host must be one of ours (a name that an attacker points at 127.0.0.1 is not), what
changes something must come from our own page (Origin, a token in the form) and, since it writes,
from a visitor who gave the token. Pages load nothing but the console's own style and script.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SESSION_S = 12 * 3600
_MOST_SESSIONS = 1000
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # `no-referrer` would take the Origin off our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser, told from others by a cookie that its scripts cannot read."""

    session: str
    csrf: str
    has_token: bool
    is_new: bool


class Gate:
    """Decides about requests; it knows the token and who gave it."""

    def __init__(
        self, *, token: str | None, hosts: Iterable[str], token_to_read: bool = False
    ) -> None:
        self._token = token
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, float] = {}
        self._guard = threading.Lock()
        self.token_to_read = token_to_read

    @property
    def has_token(self) -> bool:
        """Whether there is a token that somebody could give."""
        return self._token is not None

    def knows_host(self, request: Request) -> bool:
        """Tell whether the console was asked for under one of its own names."""
        host = request.headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and name.casefold() in self._hosts

    def is_from_here(self, request: Request) -> bool:
        """Tell whether a form was sent by one of our own pages."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin is None:
            return True
        try:
            return urlsplit(origin).netloc == request.headers.get("host")
        except ValueError:  # an address that is none
            return False

    def visitor(self, request: Request) -> Visitor:
        """Return who asks."""
        given = request.cookies.get(_cookie(request), "")
        is_new = len(given) < 32
        session = secrets.token_urlsafe(32) if is_new else given
        return Visitor(session, self._csrf(session), self._is_known(session), is_new)

    def bearer(self, request: Request) -> bool:
        """Tell whether a program gave the token with its request."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.casefold() == "bearer" and self.is_token(given.strip())

    def is_token(self, given: str) -> bool:
        """Compare with the token, in the same time whatever is wrong."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def is_csrf(self, visitor: Visitor, given: str) -> bool:
        """Tell whether a form holds what our page put into it for this visitor."""
        return hmac.compare_digest(given.encode(), visitor.csrf.encode())

    def admit(self) -> Visitor:
        """Begin a session for a visitor who gave the token; its name is new."""
        session = secrets.token_urlsafe(32)
        with self._guard:
            if len(self._sessions) >= _MOST_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[session] = time.monotonic() + _SESSION_S
        return Visitor(session, self._csrf(session), True, True)

    def dismiss(self, visitor: Visitor) -> None:
        """End a session."""
        with self._guard:
            self._sessions.pop(visitor.session, None)

    def _is_known(self, session: str) -> bool:
        with self._guard:
            end = self._sessions.get(session)
            if end is not None and end < time.monotonic():
                del self._sessions[session]
                end = None
        return end is not None

    def _csrf(self, session: str) -> str:
        return hmac.digest(self._key, session.encode(), "sha256").hex()


def _cookie(request: Request) -> str:
    # Cookies are the same on all ports: two consoles on one machine must not take each other's.
    return f"deltasql_console_{request.url.port or 80}"


def remember(request: Request, response: Response, visitor: Visitor) -> None:
    """Let the browser keep who it is, for our own pages alone."""
    # A proxy tells that the browser speaks TLS; who lies about it only gets a stricter cookie.
    schemes = (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
    response.set_cookie(
        _cookie(request),
        visitor.session,
        httponly=True,
        secure="https" in schemes,
        samesite="strict",
        path="/",
        max_age=_SESSION_S,
    )
