"""How errors are represented in HTTP responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from collections.abc import Sequence


def described_error(error: TxnLogError) -> dict[str, Any]:
    """Return an error as it is sent to a client."""
    types = [each.__name__ for each in type(error).__mro__ if issubclass(each, TxnLogError)]
    return problem(types, error.message, error.help)


def problem(types: Sequence[str], message: str, help: str = "") -> dict[str, Any]:
    """Return an error as it is sent to a client. `types` is its class, then its base classes."""
    return {"type": types[0], "types": list(types), "message": message, "help": help}
