"""Access control of the console: allowed hosts, sessions, CSRF tokens and security headers.

A malicious web page must not use the console through the browser of a user who has it open.
Therefore the Host header must be one of our names, which prevents DNS rebinding. A form must come
from our own page: its Origin and its CSRF token are checked. A form that changes something also
needs a visitor with the role of an operator: a session that was started with the token, or a user
that a reverse proxy or an OpenID Connect provider signed in. Pages load only
the console's own style sheet and scripts.
"""

from __future__ import annotations

import hmac
import re
import secrets
import threading
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.requests import Request
    from starlette.responses import Response

    from deltasql.console.oidc import OidcSignIn

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_SESSION_S = 12 * 3600
_MAX_SESSIONS = 1000
_MAX_USER = 200
_TOKEN_USER = "token"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would also omit the Origin header from our own forms.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


_LOCAL = re.compile(r"/(?![/\\])[!-\[\]-~]*")
"""A path without backslashes, spaces and control characters, which browsers read in other ways."""
_SIGN_IN = ("/login", "/logout", "/oidc")
_MAX_PATH = 4000


def local_path(given: str) -> str:
    """Return a path of this console, with its query; `/` for text that could lead elsewhere.

    >>> local_path("/tables/orders?tab=1"), local_path("//evil.example"), local_path("/\\\\evil")
    ('/tables/orders?tab=1', '/', '/')
    """
    is_local = len(given) <= _MAX_PATH and _LOCAL.fullmatch(given) is not None
    return given if is_local and not given.startswith(_SIGN_IN) else "/"


class Role(StrEnum):
    """What a signed-in visitor may do."""

    READER = "reader"
    OPERATOR = "operator"
    """May also run actions, in a console that allows writes."""


@dataclass(frozen=True, slots=True)
class ProxySignIn:
    """Sign-in by a reverse proxy: the header with the name of the user, and who is an operator."""

    header: str
    addresses: frozenset[str]
    """The addresses of the proxy; in requests from others, the header is ignored."""
    operators: frozenset[str]
    """The users with the role of an operator; all others are readers."""

    def user(self, request: Request) -> str | None:
        """Return the user that the proxy names; None if the request is not from the proxy."""
        if request.client is None or request.client.host not in self.addresses:
            return None
        return request.headers.get(self.header, "").strip()[:_MAX_USER] or None

    def role(self, user: str) -> Role:
        """Return the role of a user."""
        return Role.OPERATOR if user in self.operators else Role.READER


@dataclass(frozen=True, slots=True)
class Visitor:
    """A browser, identified by a session cookie that scripts cannot read."""

    session: str
    csrf: str
    is_new: bool
    role: Role | None
    """None if nobody is signed in."""
    user: str | None
    """The name of the user, `token` for a session that was started with the token."""
    has_session: bool = False
    """Whether the session was started by a sign-in here, and can be ended."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A session that a sign-in started."""

    ends_at: float
    role: Role
    user: str


class AccessControl:
    """Checks requests; it stores the token and the sessions that sign-ins started."""

    def __init__(
        self,
        *,
        token: str | None,
        hosts: Iterable[str],
        token_to_read: bool = False,
        proxy: ProxySignIn | None = None,
        oidc: OidcSignIn | None = None,
    ) -> None:
        self._token = token
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._key = secrets.token_bytes(32)
        self._sessions: dict[str, _Session] = {}
        self._guard = threading.Lock()
        self._proxy = proxy
        self.oidc = oidc
        self.must_sign_in = token_to_read or proxy is not None or oidc is not None

    @property
    def has_token(self) -> bool:
        """Whether the console has a token."""
        return self._token is not None

    @property
    def has_proxy(self) -> bool:
        """Whether a reverse proxy signs users in."""
        return self._proxy is not None

    def allows_host(self, request: Request) -> bool:
        """Return whether the Host header is one of the console's names."""
        host = request.headers.get("host", "")
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and name.casefold() in self._hosts

    def is_same_origin(self, request: Request) -> bool:
        """Return whether one of our own pages sent a form."""
        site = request.headers.get("sec-fetch-site")
        if site is not None and site not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin is None:
            return True
        try:
            return urlsplit(origin).netloc == request.headers.get("host")
        except ValueError:  # not a valid URL
            return False

    def visitor(self, request: Request) -> Visitor:
        """Return the visitor of a request, with a new session if it has no cookie."""
        given = request.cookies.get(_cookie(request), "")
        is_new = len(given) < 32
        session = secrets.token_urlsafe(32) if is_new else given
        csrf, user = self._csrf(session), self._proxy.user(request) if self._proxy else None
        known = self._known(session)
        if known is not None:
            return Visitor(session, csrf, is_new, known.role, user or known.user, True)
        role = None if user is None or self._proxy is None else self._proxy.role(user)
        return Visitor(session, csrf, is_new, role, user)

    def has_bearer_token(self, request: Request) -> bool:
        """Return whether the request has the token in its Authorization header."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        return kind.casefold() == "bearer" and self.is_token(given.strip())

    def is_token(self, given: str) -> bool:
        """Return whether a string is the token; the comparison takes constant time."""
        return self._token is not None and hmac.compare_digest(given.encode(), self._token.encode())

    def is_csrf_token(self, visitor: Visitor, given: str) -> bool:
        """Return whether a form has the CSRF token of this visitor's session."""
        return hmac.compare_digest(given.encode(), visitor.csrf.encode())

    def start_session(self, user: str = _TOKEN_USER, role: Role = Role.OPERATOR) -> Visitor:
        """Start a session after a sign-in; its id is new, to prevent session fixation."""
        session = secrets.token_urlsafe(32)
        with self._guard:
            if len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[session] = _Session(time.monotonic() + _SESSION_S, role, user)
        return Visitor(session, self._csrf(session), True, role, user, True)

    def end_session(self, visitor: Visitor) -> None:
        """End a session."""
        with self._guard:
            self._sessions.pop(visitor.session, None)

    def _known(self, session: str) -> _Session | None:
        with self._guard:
            found = self._sessions.get(session)
            if found is not None and found.ends_at < time.monotonic():
                del self._sessions[session]
                found = None
        return found

    def _csrf(self, session: str) -> str:
        return hmac.digest(self._key, session.encode(), "sha256").hex()


def _cookie(request: Request) -> str:
    # All ports of a host share cookies, so two consoles need different cookie names.
    return f"deltasql_console_{request.url.port or 80}"


def is_https(request: Request) -> bool:
    """Return whether the browser uses TLS, to the console or to a proxy before it.

    The header does not have to be trusted: a false value only makes a cookie stricter, and leads to
    an address that a provider rejects.
    """
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))


def set_session_cookie(request: Request, response: Response, visitor: Visitor) -> None:
    """Set the session cookie, which browsers send only with requests from our own pages."""
    response.set_cookie(
        _cookie(request),
        visitor.session,
        httponly=True,
        secure=is_https(request),
        samesite="strict",
        path="/",
        max_age=_SESSION_S,
    )
