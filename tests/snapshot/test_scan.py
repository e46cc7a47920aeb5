"""A scan finds the files that a check of every live file finds, and every file with a match."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conftest import BACKENDS, add_file, new_catalog_uri
from tests.model.oracle import (
    ARROW,
    DAY,
    OPERATORS,
    PARTITIONS,
    SCHEMA,
    Row,
    stats_json,
)
from tests.model.test_pruning import predicates as any_predicates
from tests.selection import examples

import deltasql
from deltasql import _core
from deltasql.model.actions import AddFile, RemoveFile
from deltasql.model.schema.schema import StructType
from deltasql.snapshot.snapshot import Scan

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog

LATE = ("s", "d")  # columns that are added later
FEW_INDEXED = {"delta.dataSkippingNumIndexedCols": "2"}
NOON = datetime(2020, 1, 1, 12)


@dataclass
class Lake:
    """A table with many commits, and the files and rows that it should have."""

    catalog: Catalog
    partitions: tuple[str, ...]
    live: dict[str, AddFile] = field(default_factory=dict)
    versions: dict[int, dict[str, AddFile]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)

    def commit(self, *actions: Any) -> None:
        with self.catalog.begin() as tx:
            tx.stage_table("t", list(actions))
        for action in actions:
            if isinstance(action, AddFile):
                self.live[action.path] = action
            elif isinstance(action, RemoveFile):
                del self.live[action.path]
        self.versions[tx.versions["t"]] = dict(self.live)

    def change(self, schema: StructType = SCHEMA, **configuration: str) -> None:
        metadata = self.catalog.table("t").snapshot().metadata
        kept = {k: v for k, v in metadata.configuration.items() if k not in FEW_INDEXED}
        self.commit(
            replace(
                metadata, schema_string=schema.to_json(), configuration={**kept, **configuration}
            )
        )

    def file(self, rows: list[Row], *, with_stats: bool = True) -> AddFile:
        path = f"f{len(self.rows)}"
        self.rows += [{**row, "path": path} for row in rows]
        first = rows[0]
        partition = {n: None if first[n] is None else str(first[n]) for n in self.partitions}
        stats = stats_json(rows) if with_stats else None
        return AddFile(path, partition, 1, 1, stats=stats)


def spread(number: int, dice: random.Random, without: tuple[str, ...] = ()) -> list[Row]:
    """Return two rows of a file; the files differ in every column."""
    partition = {"k": dice.choice(["a", "ab", "b", None]), "y": number % 7}
    rows = []
    for step in range(2):
        row: Row = {
            "i": number * 10 + step,
            "l": number * 10_000 + step,
            "x": number + step / 2,
            "f": float(number),
            "p": Decimal(number * 10 + step),
            "s": f"k{number:04d}-{'long' * 10}-{step}",
            "d": DAY + timedelta(days=number),
            "t": NOON + timedelta(hours=number, microseconds=step),
            "b": bool(number % 2),
        }
        hidden = {name for name in row if name in without or not dice.randrange(25)}
        rows.append({name: None if name in hidden else v for name, v in row.items()} | partition)
    return rows


def build(lake: Lake, dice: random.Random) -> None:
    """Commit single files and hundreds; add columns, drop their index and add it again."""

    def single(number: int, without: tuple[str, ...] = ()) -> None:
        for _ in range(number):
            rows = spread(dice.randrange(400), dice, without)
            lake.commit(lake.file(rows, with_stats=bool(dice.randrange(12))))

    def bulk(number: int, without: tuple[str, ...] = ()) -> None:
        order = dice.sample(range(400), number)
        lake.commit(*(lake.file(spread(each, dice, without)) for each in order))

    single(8, LATE)
    bulk(300, LATE)
    lake.change()
    single(8)
    bulk(400)
    lake.change(**FEW_INDEXED)
    single(4)
    bulk(100)
    lake.change()
    bulk(300)
    lake.commit(*(RemoveFile(path) for path in dice.sample(sorted(lake.live), 150)))
    single(8)


@pytest.fixture(
    scope="module",
    params=itertools.product(BACKENDS, [PARTITIONS, ()]),
    ids=lambda choice: f"{choice[0]}-{'partitioned' if choice[1] else 'plain'}",
)
def lake(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Lake]:
    backend, partitions = request.param
    folder: Path = tmp_path_factory.mktemp("scan")
    early = StructType(tuple(f for f in SCHEMA.fields if f.name not in LATE))
    for uri in new_catalog_uri(backend, folder):
        with deltasql.connect(
            uri, mirror={"mode": "off"}, table={"data_root": str(folder)}
        ) as catalog:
            catalog.create_table("t", early, partition_by=partitions)
            lake = Lake(catalog, partitions)
            with pytest.MonkeyPatch.context() as patch:
                # Small ranges, so that a thousand files give as many ranges as millions would.
                indexed = functools.partial(_core.index_files, range_size=16)
                patch.setattr(_core, "index_files", indexed)
                build(lake, random.Random(20240501))
            yield lake


@pytest.fixture(scope="module")
def database(lake: Lake) -> Iterator[duckdb.DuckDBPyConnection]:
    """The rows in DuckDB, to find the files with a match."""
    schema = pa.schema([*ARROW, ("path", pa.string())])
    with duckdb.connect() as connection:
        connection.register("arrow_rows", pa.Table.from_pylist(lake.rows, schema=schema))
        connection.execute("CREATE TABLE rows AS SELECT * FROM arrow_rows")
        yield connection


numbers = st.integers(-5, 405)
LITERALS = {
    "i": numbers.map(lambda n: str(n * 10)),
    "l": numbers.map(lambda n: str(n * 10_000)),
    "x": numbers.map(lambda n: f"{n}.25"),
    "f": numbers.map(str),
    "p": numbers.map(lambda n: f"{n * 10}.00"),
    "s": numbers.map(lambda n: f"'k{max(n, 0):04d}-long'"),
    "d": numbers.map(lambda n: f"'{DAY + timedelta(days=n)}'"),
    "t": numbers.map(lambda n: f"'{NOON + timedelta(hours=n)}'"),
    "k": st.sampled_from(["'a'", "'b'", "'zz'"]),
    "y": st.integers(-1, 7).map(str),
}


@st.composite
def selective(draw: st.DrawFn) -> str:
    """A condition that few of the files satisfy."""
    name = draw(st.sampled_from(list(LITERALS)))
    one = draw(LITERALS[name])
    form = draw(st.integers(0, 4))
    if form == 0:
        return f"{name} BETWEEN {one} AND {draw(LITERALS[name])}"
    if form == 1:
        return f"{name} IN ({one}, {draw(LITERALS[name])})"
    if form == 2:
        return f"s LIKE 'k{draw(st.integers(0, 40)):03d}%'"
    if form == 3:
        return f"{name} IS {draw(st.sampled_from(['NULL', 'NOT NULL']))}"
    return f"{name} {draw(st.sampled_from(OPERATORS))} {one}"


predicates = st.one_of(
    selective(),
    st.lists(selective() | any_predicates, min_size=2, max_size=3).map(" AND ".join),
    st.tuples(selective(), selective()).map(" OR ".join),
    st.tuples(selective(), selective(), selective()).map(
        lambda t: f"{t[0]} AND ({t[1]} OR {t[2]})"
    ),
    selective().map("NOT ({})".format),
    any_predicates,
)


def with_match(database: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    own = sql.replace("<=>", "IS NOT DISTINCT FROM").replace("TIMESTAMP_NTZ '", "TIMESTAMP '")
    query = f"SELECT DISTINCT path FROM (SELECT path, ({own}) AS met FROM rows) WHERE met"
    return {row[0] for row in database.execute(query).fetchall()}


@pytest.mark.two_databases
@given(predicates, st.integers(0, 10**6))
@settings(
    max_examples=examples(80),
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
def test_scan_equals_a_check_of_every_live_file(
    lake: Lake, database: duckdb.DuckDBPyConnection, sql: str, choice: int
) -> None:
    versions = sorted(lake.versions)
    version = versions[-1] if choice % 3 else versions[choice % len(versions)]
    if any(name in sql for name in LATE) and version < versions[10]:
        version = versions[-1]  # the column does not exist yet
    live = lake.versions[version]
    snapshot = lake.catalog.table("t").snapshot(version)
    found = set(snapshot.scan(sql).paths())
    tree = _core.Predicate(snapshot.predicate(sql).to_pruning_json())
    assert found == {
        path
        for path, add in live.items()
        if tree.may_match(add.stats, json.dumps(add.partition_values))
    }
    assert found >= with_match(database, sql) & live.keys()


@pytest.mark.two_databases
def test_every_version_lists_its_live_files(lake: Lake) -> None:
    for version, live in lake.versions.items():
        scan = lake.catalog.table("t").scan(version=version)
        assert set(scan.paths()) == live.keys()
        # `to_read` has the same columns as `arrow`, except the statistics.
        to_read = scan.to_read
        assert to_read.combine_chunks().equals(
            scan.arrow.select(to_read.column_names).combine_chunks()
        )


def test_selective_scan_does_not_fetch_every_file(lake: Lake, monkeypatch: Any) -> None:
    snapshot = lake.catalog.table("t").snapshot()
    by_index, by_partition = "i = 2000 AND s LIKE 'k0200%'", "y = 3"
    selective_predicate = by_partition if lake.partitions else by_index
    wanted = set(snapshot.scan(selective_predicate).paths())
    monkeypatch.setattr(
        lake.catalog.cache, "files", lambda *_: pytest.fail("every file was fetched")
    )
    assert set(snapshot.scan(selective_predicate).paths()) == wanted != set()


@pytest.mark.parametrize("bulk_files", [10_000, 3], ids=["few", "many"])
def test_scan_on_an_unclustered_column_fetches_only_files_that_overlap(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, bulk_files: int
) -> None:
    monkeypatch.setattr("deltasql.snapshot.snapshot._BULK_FILES", bulk_files)
    catalog.create_table("t", pa.schema([("id", pa.int64()), ("code", pa.int64())]))
    order = [number * 617 % 1000 for number in range(1000)]
    body = '{{"numRecords":1,"minValues":{0},"maxValues":{0}}}'
    for first in range(0, 1000, 500):
        with catalog.begin() as tx:
            both = [
                (id, json.dumps({"id": id, "code": order[id]})) for id in range(first, first + 500)
            ]
            tx.stage_table("t", [add_file(str(n), stats=body.format(bound)) for n, bound in both])
    fetched: list[int] = []
    fetch = Scan._fetch

    def counting(scan: Scan, *candidates: Any) -> _core.FileList:
        files = fetch(scan, *candidates)
        fetched.append(len(files))
        return files

    monkeypatch.setattr(Scan, "_fetch", counting)
    wanted = {str(number) for number in range(1000) if 100 <= order[number] <= 104}
    assert set(catalog.table("t").scan("code BETWEEN 100 AND 104").paths()) == wanted
    with catalog.begin() as tx:
        tx.stage_table("t", [RemoveFile(min(wanted))])
    assert set(catalog.table("t").scan("code BETWEEN 100 AND 104").paths()) == wanted - {
        min(wanted)
    }
    assert fetched == [5, 4]
    with catalog.store.session() as session:
        session.begin()
        session.script(
            "UPDATE dl_file_stats SET file_bounds = NULL"
        )  # as earlier releases wrote it
        session.commit()
    assert set(catalog.table("t").scan("code BETWEEN 100 AND 104").paths()) == wanted - {
        min(wanted)
    }
    assert fetched[2] == 999


def test_scan_on_a_nested_column_uses_its_index(catalog: Catalog) -> None:
    point = pa.struct([("x", pa.int64()), ("label", pa.string())])
    catalog.create_table("t", pa.schema([("point", point)]))
    order = random.Random(1).sample(range(50), 50)
    bound = '{{"point":{{"x":{}}}}}'.format
    stats = '{{"numRecords":1,"minValues":{0},"maxValues":{0}}}'.format
    with catalog.begin() as tx:
        tx.stage_table("t", [add_file(str(n), stats=stats(bound(n))) for n in order])
    assert catalog.table("t").scan("point.x = 7").paths() == ["7"]
    assert len(catalog.table("t").scan("point.label = 'a'")) == 50
