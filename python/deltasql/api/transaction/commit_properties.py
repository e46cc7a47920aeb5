"""Check deltalake's CommitProperties and PostCommitHookProperties, and add them to a commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from deltalake import Transaction

from deltasql.api.arguments import check_sequence, check_unsigned

if TYPE_CHECKING:
    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.model.actions import CommitInfo

_GENERATED = ("timestamp", "inCommitTimestamp", "operation", "engineInfo", "txnId")
_LEVELS = ("Serializable", "WriteSerializable", "SnapshotIsolation")
_IGNORED = ("operationMetrics", "version")


def check_commit_properties(properties: CommitProperties) -> None:
    """Raise if the number of retries or an application transaction has the wrong type."""
    check_unsigned(properties.max_commit_retries)
    if properties.app_transactions is not None:
        check_sequence(properties.app_transactions, Transaction)


def check_hooks(properties: PostCommitHookProperties) -> None:
    """Raise TypeError if a field is neither a bool nor None."""
    for name in ("create_checkpoint", "cleanup_expired_logs"):
        value = getattr(properties, name)
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"failed to extract field PyPostCommitHookProperties.{name}")


def with_custom_metadata(info: CommitInfo, custom: object) -> CommitInfo:
    """Add the custom metadata of CommitProperties to a commit's info.

    >>> from deltasql.model.actions import CommitInfo
    >>> with_custom_metadata(CommitInfo(), {"ticket": 7, "userMetadata": "nightly"}).body()
    {'userMetadata': 'nightly', 'ticket': 7}
    """
    if custom is None:
        return info
    if not isinstance(custom, Mapping):
        raise ValueError("CommitProperties.custom_metadata must be a mapping")
    for key, value in custom.items():
        _check_custom(key, value)
    own = {key: value for key, value in custom.items() if key not in _IGNORED}
    parameters = own.pop("operationParameters", {})
    texts = {key: _as_text(value) for key, value in parameters.items()}
    return replace(
        info,
        operation_parameters={**texts, **(info.operation_parameters or {})} or None,
        user_metadata=own.pop("userMetadata", info.user_metadata),
        extra={**info.extra, **own},
    )


def _check_custom(key: object, value: object) -> None:
    place = f"CommitProperties.custom_metadata[{key!r}]"
    if not isinstance(key, str):
        raise ValueError("CommitProperties.custom_metadata keys must be strings")
    if key in _GENERATED:
        raise ValueError(
            f"CommitProperties.custom_metadata key {key!r} is generated and cannot be set"
        )
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    rules = {
        "operationParameters": (isinstance(value, Mapping), "a JSON object"),
        "readVersion": (is_number, "a non-negative integer"),
        "isolationLevel": (value in _LEVELS, "a valid IsolationLevel string"),
        "isBlindAppend": (isinstance(value, bool), "a boolean"),
        **{name: (isinstance(value, str), "a string") for name in ("userId", "userName")},
        "userMetadata": (isinstance(value, str), "a string"),
    }
    holds, what = rules.get(key, (True, ""))
    if not holds:
        raise ValueError(f"{place} must be {what}")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"CommitProperties.custom_metadata value for {key!r} must be JSON-serializable: "
            f"{type(error).__name__}: {error}"
        ) from error


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
