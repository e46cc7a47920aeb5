"""Selects the tests that `make test` runs, and prints what ran and what was left out.

A test with a parameter that names a database (such as the fixture `backend`) has one case for each
database. `make test` runs

- every case of the folders in `EVERY_DATABASE` and of tests marked `every_database`;
- the cases on SQLite and PostgreSQL of tests marked `two_databases`: a statement of a few rows
  takes DuckDB eight times as long, and other tests run the same statements there;
- the case on SQLite of all other tests, and of tests marked `one_database`;
- nothing that is marked `everything("reason")`;
- a third of the examples of a property test (`examples`).

`make test-everything` sets DELTASQL_EVERYTHING and runs all cases. With DELTASQL_EVERYTHING=rest it
runs only the cases that `make test` leaves out.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
REST_ONLY = os.environ.get("DELTASQL_EVERYTHING") == "rest"
DATABASES = ("sqlite", "postgres", "duckdb")
# Tests of code that reads and writes the database, and tests of guarantees about it.
EVERY_DATABASE = (
    "tests/commit",
    "tests/faults",
    "tests/migrate",
    "tests/mirror",
    "tests/serializability",
    "tests/snapshot",
    "tests/soak",
    "tests/store",
)
# Parameters that name a database; `reader` and `engine` name programs.
_PARAMETERS = ("backend", "lake", "uri", "shared", "grown")
_MARKS = ("every_database", "two_databases", "one_database")
# Fixtures of one database, for tests without such a parameter.
_FIXTURES = {"postgres_uri": "postgres", "sqlite_uri": "sqlite"}
_OTHER = "other"
_COLUMNS = (*DATABASES, "stock", _OTHER)


def database_of(item: pytest.Item) -> str:
    """Return the database of a case, `stock` for deltalake alone, or `other`."""
    chosen = _chosen(item)
    if chosen is not None:
        return chosen
    fixtures = getattr(item, "fixturenames", ())
    return next((name for fixture, name in _FIXTURES.items() if fixture in fixtures), _OTHER)


def reason_to_skip(item: pytest.Item) -> str | None:
    """Return why `make test` does not run a case, or None if it does."""
    mark = item.get_closest_marker("everything")
    if mark is not None:
        if not mark.args:
            raise pytest.UsageError(f"{item.nodeid}: `everything` needs a reason")
        return str(mark.args[0])
    chosen = _chosen(item)
    if chosen is None or chosen == "sqlite" or chosen not in DATABASES:
        return None
    marks = (
        mark.name for mark in item.iter_markers()
    )  # marks of the test come before those of its module
    width = next((name for name in marks if name in _MARKS), None)
    if width is None and item.nodeid.startswith(EVERY_DATABASE):
        width = "every_database"
    if width == "every_database" or (width == "two_databases" and chosen == "postgres"):
        return None
    if width == "two_databases":
        return "on duckdb: such tests run on SQLite and PostgreSQL"
    return f"on {chosen}: such tests run on SQLite alone"


def examples(full: int) -> int:
    """Return the number of examples of a property test: all, or a third in `make test`."""
    return full if EVERYTHING else max(2, full // 3)


def smoke(
    values: Iterable[Any], chosen: Container[Any], reason: str, *, named: bool = False
) -> list[Any]:
    """Return parameters; `make test` runs those whose value (or name, if `named`) is in `chosen`.

    >>> [[mark.name for mark in each.marks] for each in smoke(["a", "b"], ["a"], "like a")]
    [[], ['everything']]
    """
    mark = pytest.mark.everything(reason)
    return [
        pytest.param(value, marks=() if (value.__name__ if named else value) in chosen else mark)
        for value in values
    ]


# The same examples in every run, so that a failure comes from the change under test.
# DELTASQL_EXPLORE=1 tries new ones.
EXPLORES = bool(os.environ.get("DELTASQL_EXPLORE"))
# No deadline and no health check for speed: a busy machine is not a bug.
hypothesis.settings.register_profile(
    "steady",
    max_examples=examples(100),
    derandomize=not EXPLORES,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")


class Selection:
    """The plugin: deselects cases, counts the others and prints both."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.ran: Counter[tuple[str, str]] = Counter()
        self.skipped: Counter[str] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        for item in items:
            item.user_properties.append(("database", database_of(item)))
        reasons = [(item, reason_to_skip(item)) for item in items]
        if REST_ONLY:
            config.hook.pytest_deselected(items=[item for item, reason in reasons if not reason])
            items[:] = [item for item, reason in reasons if reason]
        if EVERYTHING or any("[" in each for each in config.args):  # one case, selected by name
            return
        kept = [item for item, reason in reasons if reason is None]
        _check_that_a_case_is_left(items, kept)
        config.hook.pytest_deselected(items=[item for item, reason in reasons if reason])
        self.left_out.update(reason for _, reason in reasons if reason)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[_package(report.nodeid)] += report.duration
        if report.when == "call" or (report.when == "setup" and not report.passed):
            if report.skipped and not hasattr(report, "wasxfail"):
                self.skipped[str(report.longrepr[2])] += 1  # type: ignore[index]
                return
            database = dict(report.user_properties).get("database", _OTHER)
            self.ran[_package(report.nodeid), str(database)] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["left_out"] = dict(self.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        # Every worker collects the same tests, so the counts are not added.
        self.left_out |= Counter(getattr(node, "workeroutput", {}).get("left_out", {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.ran:
            terminalreporter.section("tests run, by package and database")
            for line in self.table():
                terminalreporter.write_line(line)

    def table(self) -> list[str]:
        """Return the lines of both tables."""
        packages = sorted({package for package, _ in self.ran})
        rows = [
            (package, *(self.ran[package, column] for column in _COLUMNS)) for package in packages
        ]
        rows.append(("all", *(sum(row[n] for row in rows) for n in range(1, len(_COLUMNS) + 1))))
        seconds = {**self.seconds, "all": sum(self.seconds.values())}
        lines = [f"{'':24}" + "".join(f"{name:>10}" for name in (*_COLUMNS, "all", "seconds"))]
        for name, *counts in rows:
            cells = "".join(f"{n or '-':>10}" for n in (*counts, sum(counts)))
            lines.append(f"{name:24}{cells}{seconds[name]:>10,.0f}")
        lines += [
            "stock: deltalake alone. other: needs no database, or opens one without a parameter.",
            "",
        ]
        left = sum(self.left_out.values())
        if left:
            lines.append(f"Left out: {left:,} cases, which `make test-everything` runs:")
            lines += [f"{n:>7,}  {reason}" for reason, n in self.left_out.most_common()]
        else:
            lines.append("Left out: nothing.")
        lines += [f"{n:>7,}  skipped: {reason}" for reason, n in self.skipped.most_common()]
        return lines


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Selection(), "deltasql-selection")


def _chosen(item: pytest.Item) -> str | None:
    """Return the database (or `stock`) that a parameter of the case, or an item of it, names."""
    callspec = getattr(item, "callspec", None)
    values = [callspec.params.get(name) for name in _PARAMETERS] if callspec else []
    parts = [part for value in values for part in (value if isinstance(value, tuple) else (value,))]
    return next((part for part in parts if part in (*DATABASES, "stock")), None)


def _package(nodeid: str) -> str:
    """Return the folder of a test: `tests/api`, `tests`, or `docstrings` of the package."""
    parts = nodeid.partition("::")[0].split("/")[:-1]
    return "docstrings" if parts[:1] == ["python"] else "/".join(parts[:2])


def _check_that_a_case_is_left(items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Raise if no case of a test is left, such as a PostgreSQL-only test without a mark."""
    running = {_function(item) for item in kept}
    for item in items:
        if item.get_closest_marker("everything") is None and _function(item) not in running:
            raise pytest.UsageError(
                f"{_function(item)} would run on no database: mark it `every_database`, "
                "or `everything` with a reason"
            )


def _function(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]
