"""The checks of the matrix: each is a function that returns a cell or raises `Broken`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.model.counts import many
from tests.compat.environments import Release, ReleaseError
from tests.compat.makers import MAKERS
from tests.oracles.deltasql_reader import own_rows
from tests.oracles.fixed_set import TABLES, Lake, checked_versions
from tests.oracles.states import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog

READS, WRITES, IMPORTS, MOVES = (
    "Reads what deltasql publishes",
    "Writes by path",
    "Its tables are imported",
    "Cutover and rollback",
)
YES, REJECTED, DETECTED = "yes", "rejected", "not rejected, but detected"
# A check of this table takes minutes, and its number of files tests nothing about a release.
_LEFT_OUT = ("many_files",)


class Broken(Exception):
    """A guarantee that does not hold with a release."""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the matrix."""

    topic: str
    title: str
    run: Callable[[Place], str]


@dataclass(frozen=True, slots=True)
class Place:
    """A release of deltalake, the tables of deltasql, and a folder for tables of the release."""

    release: Release
    lake: Lake
    folder: Path

    @property
    def catalog(self) -> Catalog:
        return self.lake.catalog


def checks() -> Iterator[Check]:
    """Yield every line of the matrix in order."""
    for name, build in TABLES.items():
        if name not in _LEFT_OUT:
            yield Check(READS, _title(build), lambda place, name=name: _reads(place, name))
    yield Check(WRITES, "A table of deltasql with default properties", _is_rejected)
    yield Check(
        WRITES, "A table without in-commit timestamps; the database adopts the commit", _is_adopted
    )
    for name, maker in MAKERS.items():
        yield Check(IMPORTS, _title(maker), lambda place, name=name: _imports(place, name))
    yield Check(MOVES, "Before cutover: it writes, and the next import catches up", _catches_up)
    yield Check(MOVES, "After cutover: it reads, and its writes are rejected", _is_cut_over)
    yield Check(MOVES, "After rollback: it reads and writes", _is_rolled_back)


def _reads(place: Place, name: str) -> str:
    """Compare the rows of every version; an error is an accepted result, wrong rows are not."""
    ways: dict[str, str | None] = {"pyarrow": None, "sql": None}
    for table in place.lake.tables(name):
        for at in checked_versions(table):
            for way in [way for way, error in ways.items() if error is None]:
                try:
                    found = place.release.request(
                        "read", location=table.table.location, at=at, way=way
                    )
                except ReleaseError as error:
                    ways[way] = str(error)
                    continue
                if _rows(found) != table.states[at]:
                    ways[way] = "wrong rows"
    return _cell(ways)


def _cell(ways: Mapping[str, str | None]) -> str:
    if all(error is None for error in ways.values()):
        return YES
    for way, error in ways.items():
        if error is None:
            return f"{'QueryBuilder' if way == 'sql' else 'pyarrow'} only"
    if "wrong rows" in ways.values():
        return "wrong rows"
    return "no"


def _is_rejected(place: Place) -> str:
    name = _name(place, "guarded")
    return _write_error(place, name, place.catalog.create_table(name, _SCHEMA).location)


def _write_error(place: Place, name: str, location: str) -> str:
    """Let a release write to one of our tables; a write that succeeds must be detected."""
    try:
        place.release.request("append", location=location, numbers=[1])
    except ReleaseError:
        return REJECTED
    (report,) = place.catalog.mirror.verify(name)
    if report.first_foreign is None:
        raise Broken("the commit of the release bypassed SQL and was not detected")
    place.catalog.mirror.reject(name)
    at = place.catalog.table(name).version()
    found = place.release.request("read", location=location, at=at, way="pyarrow")
    if _rows(found) != own_rows(place.catalog.table(name), at):
        raise Broken("the release still sees what was rejected")
    return DETECTED


def _is_adopted(place: Place) -> str:
    name = _name(place, "open")
    properties = {"delta.enableInCommitTimestamps": "false"}
    table = place.catalog.create_table(name, _SCHEMA, properties=properties)
    try:
        version = place.release.request("append", location=table.location, numbers=[1])
    except ReleaseError as error:
        raise Broken(str(error)) from error
    place.catalog.mirror.adopt(name)
    if place.catalog.table(name).version() != version:
        raise Broken("the commit was not adopted")
    return YES


def _imports(place: Place, maker: str) -> str:
    location = place.folder / maker
    location.mkdir(parents=True)
    try:
        states = place.release.request("make", location=str(location), maker=maker)
    except ReleaseError as error:
        return f"cannot write it ({str(error).partition(':')[0]})"
    name = _name(place, maker)
    place.catalog.import_table(str(location), name=name)
    unreadable = _verify(place, name)
    for at, expected in states.items():
        if own_rows(place.catalog.table(name), int(at)) != _rows(expected):
            raise Broken(f"version {at} has other rows")
    return f"{YES}, but 1.6 cannot open {many(unreadable, 'version')}" if unreadable else YES


def _catches_up(place: Place) -> str:
    location, name = _moving(place)
    place.release.request("append", location=location, numbers=[1, 2])
    place.catalog.import_table(location, name=name)
    version = place.release.request("append", location=location, numbers=[3])
    place.catalog.import_table(location, name=name)
    if place.catalog.table(name).version() != version:
        raise Broken("the second import did not catch up")
    _verify(place, name)
    return YES


def _is_cut_over(place: Place) -> str:
    location, name = _moving(place)
    place.catalog.cutover(name)
    with place.catalog.begin() as tx:
        tx.write(name, pa.table({"id": pa.array([4], pa.int64())}))
    at = place.catalog.table(name).version()
    found = place.release.request("read", location=location, at=at, way="pyarrow")
    if len(found["rows"]) != 4:
        raise Broken("the release does not see what was written through SQL")
    return f"reads, {_write_error(place, name, location)}"


def _is_rolled_back(place: Place) -> str:
    location, name = _moving(place)
    before = place.catalog.table(name).version()
    place.catalog.rollback(name)
    version = place.release.request("append", location=location, numbers=[5])
    if version <= before:
        raise Broken("versions were lost")
    found = place.release.request("read", location=location, at=version, way="pyarrow")
    if len(found["rows"]) != 5:
        raise Broken("rows were lost")
    return YES


def _moving(place: Place) -> tuple[str, str]:
    return str(place.folder / "moving"), _name(place, "moving")


def _name(place: Place, table: str) -> str:
    return f"{place.folder.name.replace('.', '_')}_{table}"


def _verify(place: Place, name: str) -> int:
    """Compare SQL with the log; return how many versions the installed deltalake cannot open."""
    (report,) = place.catalog.mirror.verify(name, versions="all")
    found = report.differences
    unreadable = [each for each in found if (each.source, each.kind) == ("deltalake", "unreadable")]
    if len(unreadable) < report.total:
        raise Broken(report.summary())
    return len(unreadable)


def _rows(found: dict[str, list[str]]) -> Rows:
    columns = tuple((name, kind) for name, kind in found["columns"])
    return Rows(columns, tuple(found["rows"]))


def _title(build: Callable[..., object]) -> str:
    return str(build.__doc__).splitlines()[0].removesuffix(".")


_SCHEMA = pa.schema([("id", pa.int64())])
