"""Sign-in with OpenID Connect: the authorization code flow with PKCE, which Authlib runs.

The session cookie is not sent when the provider sends the browser back, because it is
`SameSite=Strict`. The flow's data (state, nonce, code verifier, the page to open) is therefore in a
second cookie, which is `SameSite=Lax`, signed, and valid for ten minutes. The console itself stores
nothing, so nobody can end a sign-in by beginning many others. The cookie is deleted after one
attempt, and the provider accepts each authorization code once.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deltasql.console.security import Role, is_https
from deltasql.exceptions import MissingDriverError, TxnLogConfigError

try:
    import httpx2
    from authlib.common.errors import AuthlibBaseError
    from authlib.integrations.base_client import MismatchingStateError, OAuthError
    from authlib.integrations.starlette_client import OAuth
    from joserfc import jws
    from joserfc.errors import ExpiredTokenError, JoseError
    from joserfc.jwk import OctKey
except ImportError as missing:  # pragma: no cover - the extra is not installed
    raise MissingDriverError(driver="authlib", extra="oidc") from missing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.requests import Request
    from starlette.responses import Response

CALLBACK = "/oidc/callback"
_COOKIE = "deltasql_console_sign_in"
_COOKIE_PATH = "/oidc"
_SEAL = "HS256"
_PENDING_S = 600
_MAX_NEXT = 1000
"""The maximum length of `next_page` in the cookie. Browsers limit a cookie to 4096 bytes."""
_TIMEOUT_S = 10.0
_MAX_TEXT = 200
_SIGNATURES = ("RS", "PS", "ES", "Ed")
EXPIRED = (
    "This sign-in has expired, was already used, or was started in another browser. Sign in again."
)


class SignInError(Exception):
    """A sign-in failed; the message is for the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """How users sign in with a provider, and who may do what."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    """The client's secret; None for a public client, which only PKCE protects."""
    claim: str = "groups"
    """The claim with the values that `operators` and `readers` name."""
    operators: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    """If empty, every user of the provider may read."""
    scopes: tuple[str, ...] = ()
    """Scopes to request besides `openid` and `email`."""

    def __post_init__(self) -> None:
        place = urlsplit(self.issuer)
        if place.username or place.password:
            raise TxnLogConfigError(
                "the address of the OpenID Connect provider contains a user or a password",
                help="Give only the issuer, such as https://sso.example.com.",
            )
        if place.scheme != "https" and not (place.scheme == "http" and _is_local(place.hostname)):
            raise TxnLogConfigError(
                f"{self.issuer} is not an https:// address of an OpenID Connect provider",
                help="Give the issuer as in the provider's metadata: https://sso.example.com.",
            )


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A user whom the provider signed in, and the role that the claim gives."""

    user: str
    role: Role
    next_page: str
    """The page that the browser requested before the sign-in."""


class OidcSignIn:
    """Redirects browsers to the provider, and checks the responses with which they return."""

    def __init__(self, settings: OidcSettings) -> None:
        self._settings = settings
        self._key = OctKey.generate_key(256)
        self._client = OAuth().register(
            "console",
            client_id=settings.client_id,
            client_secret=settings.client_secret,
            server_metadata_url=f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(("openid", "email", *settings.scopes)),
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
                # Otherwise Authlib does not use access tokens that live for a minute or less.
                "leeway": 0,
                **({} if settings.client_secret else {"token_endpoint_auth_method": "none"}),
            },
        )

    @property
    def host(self) -> str:
        """The host name of the provider."""
        return urlsplit(self._settings.issuer).netloc

    @property
    def claim(self) -> str:
        """The claim that gives the role."""
        return self._settings.claim

    def begin(self, request: Request, next_page: str = "/") -> Response:
        """Redirect the browser to the provider; `next_page` is opened after the sign-in."""
        flow: dict[str, Any] = {}
        request.scope["session"] = flow
        address = f"{'https' if is_https(request) else 'http'}://{request.headers['host']}"
        response: Response = self._run(self._redirect(request, f"{address}{CALLBACK}"))
        if len(next_page) > _MAX_NEXT:
            next_page = "/"
        content = {"ends_at": time.monotonic() + _PENDING_S, "flow": flow, "next": next_page}
        response.set_cookie(
            _cookie(request),
            jws.serialize_compact({"alg": _SEAL}, json.dumps(content), self._key),
            httponly=True,
            secure=is_https(request),
            samesite="lax",
            path=_COOKIE_PATH,
            max_age=_PENDING_S,
        )
        return response

    def complete(self, request: Request) -> SignedIn:
        """Exchange the authorization code in the request for an ID token, and return its user.

        Raises SignInError if the sign-in was not started in this browser in the last ten minutes,
        if the provider refused it, or if the user may not use the console.
        """
        begun = self._begun(request)
        if begun is None:
            raise SignInError(400, EXPIRED)
        request.scope["session"] = begun["flow"]
        claims = dict(self._run(self._claims(request)))
        if claims.get("email_verified") not in (True, "true"):
            claims.pop("email", None)  # the user may have entered the address of somebody else
        user = str(claims.get("email") or claims["sub"])[:_MAX_TEXT]
        return SignedIn(user, self._role(user, claims), begun["next"])

    def forget(self, request: Request, response: Response) -> None:
        """Delete the cookie of a sign-in that has ended."""
        response.delete_cookie(
            _cookie(request),
            path=_COOKIE_PATH,
            httponly=True,
            secure=is_https(request),
            samesite="lax",
        )

    def _begun(self, request: Request) -> dict[str, Any] | None:
        """Return the content of the cookie; None if it has expired or is not from this console."""
        try:
            given = request.cookies.get(_cookie(request), "")
            signed = jws.deserialize_compact(given, self._key, algorithms=[_SEAL])
        except (JoseError, ValueError):
            return None
        content: dict[str, Any] = json.loads(signed.payload)
        return content if content["ends_at"] >= time.monotonic() else None

    def _run(self, work: Any) -> Any:
        """Run the client of Authlib, which is asynchronous, in this thread."""
        try:
            return asyncio.run(work)
        except MismatchingStateError as error:
            raise SignInError(400, EXPIRED) from error
        except OAuthError as error:
            said = " ".join(filter(None, (error.error, error.description)))[:_MAX_TEXT]
            raise SignInError(
                403, f"The provider {self.host} refused the sign-in: {said}."
            ) from error
        except ExpiredTokenError as error:
            raise SignInError(
                403,
                f"The ID token of {self.host} has expired: sign in again, and check the clocks of "
                "both machines.",
            ) from error
        except (AuthlibBaseError, JoseError) as error:
            raise SignInError(
                403, f"The ID token of {self.host} is not valid: {str(error)[:_MAX_TEXT]}."
            ) from error
        except httpx2.HTTPStatusError as error:
            raise SignInError(
                503,
                f"{error.request.url} answered with status {error.response.status_code}: check "
                "--oidc-issuer.",
            ) from error
        except httpx2.HTTPError as error:
            raise SignInError(
                503,
                f"The provider {self._settings.issuer} cannot be reached: {error or 'timeout'}.",
            ) from error
        except (
            ValueError,
            TypeError,
            KeyError,
            RuntimeError,
        ) as error:  # Authlib raises these for invalid metadata
            raise SignInError(
                503, f"The answer of {self.host} is not OpenID Connect: check --oidc-issuer."
            ) from error

    async def _redirect(self, request: Request, address: str) -> Response:
        await self._metadata()
        found: Response = await self._client.authorize_redirect(request, address)
        return found

    async def _claims(self, request: Request) -> Mapping[str, Any]:
        # Check the state first, so that a forged link cannot make the console show its message.
        state = request.query_params.get("state")
        if not await self._client.framework.get_state_data(request.session, state):
            raise SignInError(400, EXPIRED)
        metadata = await self._metadata()
        try:
            token = await self._client.authorize_access_token(request)
        finally:  # a state can be used only once
            await self._client.framework.clear_state_data(request.session, state)
        claims: dict[str, Any] = dict(token.get("userinfo") or {})
        if "sub" not in claims:
            raise SignInError(403, f"{self.host} sent no ID token.")
        wanted = {"email", *((self.claim,) if self._needs_claim else ())}
        if not wanted <= claims.keys() and "userinfo_endpoint" in metadata:
            more = await self._client.userinfo(token=token)
            if more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return claims

    async def _metadata(self) -> Mapping[str, Any]:
        """Return the metadata of the provider, which is loaded once."""
        metadata: dict[str, Any] = await self._client.load_server_metadata()
        if str(metadata.get("issuer", "")).rstrip("/") != self._settings.issuer.rstrip("/"):
            metadata.pop("_loaded_at", None)  # so that the next sign-in loads it again
            raise SignInError(
                503,
                f"The provider calls itself {metadata.get('issuer')}, but --oidc-issuer is "
                f"{self._settings.issuer}.",
            )
        # Accept only signatures with a public key: neither `none` nor those with the client's
        # secret.
        key = "id_token_signing_alg_values_supported"
        metadata[key] = [each for each in metadata.get(key) or () if each.startswith(_SIGNATURES)]
        return metadata

    @property
    def _needs_claim(self) -> bool:
        return bool(self._settings.operators or self._settings.readers)

    def _role(self, user: str, claims: Mapping[str, Any]) -> Role:
        if not self._needs_claim:
            return Role.READER
        value = claims.get(self.claim)
        if value is None and not self._settings.readers:
            return Role.READER
        if value is None:
            raise SignInError(
                403,
                f"{self.host} sent no claim {self.claim} for {user}: add it to the tokens of this "
                "client, request its scope with --oidc-scope, or name another claim with "
                "--oidc-claim.",
            )
        values = set(map(str, value)) if isinstance(value, list) else {str(value)}
        if values & self._settings.operators:
            return Role.OPERATOR
        if not self._settings.readers or values & self._settings.readers:
            return Role.READER
        raise SignInError(
            403,
            f"{user} may not use this console: no value of the claim {self.claim} is one of those "
            "given with --reader or --operator.",
        )


def _cookie(request: Request) -> str:
    # All ports of a host share cookies, so two consoles need different cookie names.
    return f"{_COOKIE}_{request.url.port or 80}"


def _is_local(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
