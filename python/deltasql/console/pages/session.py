"""The token: giving it, and giving it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.console.security import remember

if TYPE_CHECKING:
    from starlette.responses import Response

    from deltasql.console.asking import Ask


def show(ask: Ask) -> Response:
    """The form for the token."""
    return ask.page("login.html", wrong=False)


def enter(ask: Ask) -> Response:
    """Begin a session when the token is right."""
    if not ask.console.gate.is_token(ask.form.get("token", "").strip()):
        return ask.page("login.html", 403, wrong=True)
    response = ask.go("/")
    remember(ask.request, response, ask.console.gate.admit())
    return response


def leave(ask: Ask) -> Response:
    """End the session."""
    ask.console.gate.dismiss(ask.visitor)
    return ask.go("/")
