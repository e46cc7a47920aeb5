"""PostgreSQL commits and its response is lost, for every reply of an operation in turn."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import CommitOutcomeUnknownError, TxnLogError
from tests.commit.proxy import Cut, Proxy
from tests.commit.support import audit
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

    Change = Callable[[Catalog, DeltaSqlUri], object]

BEYOND = pytest.mark.everything("lost responses in more operations")
CUTS: tuple[Cut, ...] = (
    "reply to COMMIT",
    "half of the reply to COMMIT",
    "reply to SELECT",
    "half of the reply to SELECT",
)
SETTINGS = {
    "mirror": {"mode": "sync", "initial_backoff_s": 0},
    "retry": {"max_attempts": 3, "initial_backoff_ms": 1, "max_backoff_ms": 5},
    "pool": {"timeout_s": 5},
}


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([1] * len(ids), pa.int64())})


def append_by_uri(_: Catalog, uri: DeltaSqlUri) -> None:
    deltasql.write_deltalake(uri.with_table("t").to_string(), rows(10), mode="append")


def overwrite_by_uri(_: Catalog, uri: DeltaSqlUri) -> None:
    deltasql.write_deltalake(uri.with_table("t").to_string(), rows(10, 11), mode="overwrite")


def merge_by_uri(_: Catalog, uri: DeltaSqlUri) -> None:
    table = deltasql.DeltaTable(uri.with_table("t").to_string())
    merger = table.merge(rows(2, 3), "t.id = s.id", source_alias="s", target_alias="t")
    merger.when_matched_update({"v": "t.v + 1"}).when_not_matched_insert_all().execute()


def change_two_tables(far: Catalog, _: DeltaSqlUri) -> None:
    with far.begin() as tx:
        tx.write("t", rows(10))
        merger = tx.merge("u", rows(2, 3), "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update({"v": "t.v + 1"}).when_not_matched_insert_all().execute()


def overwrite_two_tables(far: Catalog, _: DeltaSqlUri) -> None:
    with far.begin() as tx:
        tx.write("t", rows(10, 11), mode="overwrite")
        tx.write("u", rows(12), mode="overwrite")


def delete_and_create(far: Catalog, _: DeltaSqlUri) -> None:
    with far.begin() as tx:
        tx.delete("t", "id = 1")
        place = f"{far.config.table.data_root}/{uuid.uuid4().hex}"
        tx.create_table("new", rows().schema, location=place)
        tx.write("new", rows(7))


CHANGES: tuple[Change, ...] = (
    append_by_uri,
    overwrite_by_uri,
    merge_by_uri,
    change_two_tables,
    overwrite_two_tables,
    delete_and_create,
)
CASES = [(cut, change) for cut in CUTS for change in CHANGES]


@pytest.fixture
def direct(postgres_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(postgres_uri, tmp_path / "lake", **SETTINGS) as catalog:
        yield catalog


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        yield running


def begin_again(catalog: Catalog) -> dict[str, list[tuple[int, int]]]:
    """Reset both tables to two rows."""
    if any(each.name == "new" for each in catalog.tables()):
        catalog.drop("new")
    with catalog.begin() as tx:
        for name in ("t", "u"):
            tx.write(name, rows(1, 2), mode="overwrite")
    return contents(catalog)


def contents(catalog: Catalog) -> dict[str, list[tuple[int, int]]]:
    """Return the rows of every table; check that deltalake reads the same."""
    audit(catalog)
    catalog.mirror.run(once=True)
    found = {}
    with catalog.begin() as tx:
        for each in catalog.tables():
            seen = tx.read(each.name)
            found[each.name] = sorted(zip(*(seen[c].to_pylist() for c in ("id", "v")), strict=True))
            stock = deltalake.DeltaTable(each.location).to_pyarrow_table()
            in_log = zip(*(stock[c].to_pylist() for c in ("id", "v")), strict=True)
            assert sorted(in_log) == found[each.name]
    return found


@pytest.mark.parametrize(
    ("cut", "change"),
    [*CASES[:7], *(pytest.param(*case, marks=BEYOND) for case in CASES[7:])],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_operation_with_a_lost_response_is_applied_once(
    direct: Catalog, proxy: Proxy, cut: Cut, change: Change
) -> None:
    begin_again(direct)
    change(direct, direct.uri)
    wanted = contents(direct)
    uri = proxy.uri(direct.uri)
    places = 0
    while True:
        before = begin_again(direct)
        with open_mirrored(uri, direct.config.table.data_root or "", **SETTINGS) as far:
            far.table("t").version()
            proxy.arm(cut, but_first=places)
            is_certain = did = True
            try:
                change(far, uri)
            except CommitOutcomeUnknownError:
                is_certain = False
            except TxnLogError:
                did = False
            proxy.disarm()
        after = contents(direct)
        if is_certain:
            assert after == (wanted if did else before), f"{cut} {places}"
        else:
            assert after in (wanted, before), f"{cut} {places}"
        if proxy.cuts == places:  # there were no more replies of this kind
            break
        places += 1
        assert proxy.cuts == places
    assert places >= 1 or change is append_by_uri
    print(f"{change.__name__}: {cut} {places} times")
