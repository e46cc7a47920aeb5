"""Convert validation errors of settings to TxnLogConfigError: key, source, allowed values."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from deltasql.exceptions import TxnLogConfigError, is_secret_name

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

_TYPE_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}


def problem(
    error: ValidationError,
    model: type[BaseModel],
    given: Mapping[str, Any],
    sources: Mapping[str, str],
) -> TxnLogConfigError:
    """Return the error for the first wrong key; it also reports how many other keys are wrong."""
    first, *others = error.errors(include_url=False, include_context=True)
    path = [str(part) for part in first["loc"]]
    key = ".".join(path)
    source = _source(key, sources)
    more = f" (and {len(others)} more)" if others else ""
    if first["type"] == "extra_forbidden":
        nearest = get_close_matches(key, known_keys(model), 1, 0.7)
        hint = f"Did you mean {nearest[0]}? " if nearest else ""
        return TxnLogConfigError(
            f"unknown setting {key}{more}",
            key=key,
            source=source,
            help=f"{hint}`deltasql docs config` lists all keys.",
        )
    found = field_at(model, path)
    allowed = allowed_values(found) if found else None
    value = _value(given, path)
    shown = "" if value is None or is_secret_name(key) or _hides(found) else f" {value!r}"
    reason = ""
    if first["type"] == "value_error":
        # The rule is about several keys of a section, so there are no allowed values to show.
        reason, allowed = first["msg"].removeprefix("Value error, "), None
    message = f"setting {key}{shown} is not allowed{f': {reason}' if reason else ''}{more}"
    return TxnLogConfigError(
        message,
        key=key,
        source=source,
        allowed=allowed,
        help=f"Set {key} to {allowed} in {source}." if allowed else f"Correct it in {source}.",
    )


def known_keys(model: type[BaseModel]) -> list[str]:
    """Return every dotted key and every section name."""
    keys = []
    for name, found in model.model_fields.items():
        keys.append(name)
        section = found.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            keys += [f"{name}.{key}" for key in section.model_fields]
    return keys


def field_at(model: type[BaseModel], path: list[str]) -> FieldInfo | None:
    """Return the field at a path; for a path into a dict, return the field of the dict."""
    found = model.model_fields.get(path[0]) if path else None
    if found is None:
        return None
    inner = found.annotation
    if len(path) > 1 and isinstance(inner, type) and issubclass(inner, BaseModel):
        return field_at(inner, path[1:])
    return found


def allowed_values(found: FieldInfo) -> str:
    """Describe the allowed values of a field.

    >>> from deltasql.config.sections import PoolSettings
    >>> allowed_values(PoolSettings.model_fields["max_size"])
    'a whole number from 1 to 1000'
    """
    kinds = [kind for kind in get_args(found.annotation) if kind is not NoneType]
    optional = NoneType in get_args(found.annotation)
    kind = kinds[0] if optional else found.annotation
    if get_origin(kind) is Literal:
        text = f"one of {', '.join(map(str, get_args(kind)))}"
    elif get_origin(kind) is dict:
        inner = get_origin(get_args(kind)[1]) is dict
        text = "a mapping of names to options" if inner else "a mapping of names to strings"
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        text = f"a section with {', '.join(kind.model_fields)}"
    else:
        text = _TYPE_NAMES.get(kind, "a string") + _limits(found.metadata)  # type: ignore[arg-type]
    return f"{text}, or unset" if optional else text


def _limits(metadata: list[Any]) -> str:
    limits: dict[str, Any] = {}
    for each in metadata:
        for name in ("ge", "gt", "le", "min_length", "max_length", "pattern"):
            value = getattr(each, name, None)
            if value is not None:
                limits[name] = value
    parts = []
    if "ge" in limits:
        parts.append(f"from {limits['ge']:g}" if limits["ge"] < 1e6 else f"from {limits['ge']}")
    if "gt" in limits:
        parts.append(f"above {limits['gt']:g}")
    if "le" in limits:
        parts.append(f"to {limits['le']}")
    if "max_length" in limits:
        parts.append(f"of 1 to {limits['max_length']} characters")
    if "pattern" in limits:
        parts.append("such as 512MB or 4GiB")
    return f" {' '.join(parts)}" if parts else ""


def _source(key: str, sources: Mapping[str, str]) -> str:
    if key in sources:
        return sources[key]
    inside = [name for name in sources if name.startswith(f"{key}.")]
    return " and ".join(dict.fromkeys(sources[name] for name in inside)) or "the call"


def _value(given: Mapping[str, Any], path: list[str]) -> Any:
    value: Any = given
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return None if isinstance(value, Mapping | SecretStr) else value


def _hides(found: FieldInfo | None) -> bool:
    return found is not None and get_origin(found.annotation) is dict
