"""Sign in with the token, and sign out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.console.security import remember

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.request import PageRequest


def show(ask: PageRequest) -> Response:
    """Show the form for the token."""
    return ask.page("login.html", wrong=False)


def enter(ask: PageRequest) -> Response:
    """Start a session if the token is correct."""
    if not ask.state.gate.is_token(ask.form.get("token", "").strip()):
        return ask.page("login.html", 403, wrong=True)
    response = ask.go("/")
    remember(ask.request, response, ask.state.gate.admit())
    return response


def leave(ask: PageRequest) -> Response:
    """End the session."""
    ask.state.gate.dismiss(ask.visitor)
    return ask.go("/")
