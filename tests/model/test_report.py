"""Every report is frozen, documented, and converts to plain values."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import types
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import pytest
from docs.tools.api import PAGES

from deltasql.exceptions import TxnLogError, VersionGapError
from deltasql.model.report import Report
from tests.each import check_each

PACKAGES = ("api", "migrate", "mirror", "verify", "commit", "operations", "store")


@dataclass(frozen=True, slots=True)
class Sample(Report):
    """A report with values of every kind, and a name that replaced another."""

    OLD_NAMES: ClassVar[Mapping[str, str]] = {"old": "new"}

    new: Any
    seconds: float = 0.0


def reports() -> list[type[Report]]:
    """Return all classes of reports, except base classes."""
    for package in PACKAGES:
        folder = importlib.import_module(f"deltasql.{package}")
        for module in pkgutil.walk_packages(folder.__path__, f"{folder.__name__}."):
            importlib.import_module(module.name)
    found = [*_subclasses(Report)]
    return [each for each in found if is_dataclass(each) and not inspect.isabstract(each)]


def _subclasses(cls: type) -> Iterator[type]:
    for each in cls.__subclasses__():
        if each.__module__.startswith("deltasql."):
            yield each
            yield from _subclasses(each)


def test_every_report_is_frozen_and_documented() -> None:
    found = reports()
    assert len(found) > 35
    check_each(found, _is_frozen_and_documented)


def _is_frozen_and_documented(report: type[Report]) -> None:
    assert report.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert (report.__doc__ or "").split("(")[0] != report.__name__  # the default of dataclasses
    assert "to_dict" not in report.__dict__  # there is one mechanism
    names = {each.name for each in fields(report)}  # type: ignore[arg-type]
    for key in report.KEYS:
        assert key in names or inspect.getdoc(getattr(report, key)), key
    assert {*report.OLD_NAMES.values()} <= names


def test_every_report_is_in_the_reference() -> None:
    described = {name for page in PAGES.values() for name in page.returned}
    found = {f"{each.__module__}.{each.__name__}".removeprefix("deltasql.") for each in reports()}
    assert found - described == set()


def test_every_report_converts_to_json() -> None:
    known = {each.__name__: each for each in reports()}
    names = known | {
        "ClassVar": ClassVar,
        "datetime": datetime,
        "TxnLogError": TxnLogError,
        "Mapping": Mapping,
        "Sequence": Sequence,
        "Counter": Counter,
    }
    check_each([*known.values()], lambda each: _converts(each, names))


def _converts(report: type[Report], names: dict[str, Any]) -> None:
    found = _example(report, names)
    plain = found.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    keys = report.KEYS or [each.name for each in fields(report)]  # type: ignore[arg-type]
    assert {*plain} >= {*keys}
    assert {*plain} <= {*keys, *report.OLD_NAMES}
    field = fields(report)[0].name  # type: ignore[arg-type]
    with pytest.raises(FrozenInstanceError):
        setattr(found, field, None)


def _example(hint: Any, names: dict[str, Any]) -> Any:
    """Return a value of a type; for an optional value, not None."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is TxnLogError:
        return VersionGapError(table="t", first_missing=1, last_missing=2)
    if inspect.isclass(hint) and is_dataclass(hint):
        hints = get_type_hints(hint, localns=names)
        return hint(**{each.name: _example(hints[each.name], names) for each in fields(hint)})
    if origin is Literal:
        return inner[0]
    if origin in (Union, types.UnionType):
        return _example(next(each for each in inner if each is not type(None)), names)
    examples = [_example(each, names) for each in inner if each is not ...]
    if origin in (list, tuple, set):
        return origin(examples)
    if origin is Counter:
        return Counter(examples)
    if origin in (dict, Mapping):
        return {examples[0]: examples[1]}
    if isinstance(hint, TypeVar) or hint in (Any, datetime):
        return datetime(2024, 5, 1, tzinfo=UTC)
    if hint is date:
        return date(2024, 5, 1)
    return hint()


def test_values_that_json_lacks_become_strings() -> None:
    value = {1: (datetime(2024, 5, 1, tzinfo=UTC), Decimal("1.50")), "nested": [Sample(None)]}
    assert Sample(value, seconds=1.23456).to_dict()["new"] == {
        "1": ["2024-05-01T00:00:00+00:00", "1.50"],
        "nested": [{"new": None, "seconds": 0.0, "old": None}],
    }


def test_seconds_are_rounded_to_milliseconds() -> None:
    assert Sample(1, seconds=1.23456).to_dict() == {"new": 1, "seconds": 1.235, "old": 1}


def test_replaced_names_are_deprecated() -> None:
    with pytest.warns(DeprecationWarning, match=r"Sample\.old is deprecated; use new instead"):
        assert getattr(Sample(1), "old") == 1  # noqa: B009
    assert not hasattr(Sample(1), "other")
