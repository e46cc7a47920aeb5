"""Writers that race to create a missing table: one wins, the others get a clear error."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
import pytest

import deltasql
from deltasql.api.catalog.connect import close_all
from deltasql.exceptions import CommitConflictError, TableExistsError, VersionTakenError

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri


def rows(by: str) -> pa.Table:
    return pa.table({"by": [by]})


def writers_of_rows(catalog: Catalog) -> list[str]:
    with catalog.begin() as tx:
        return sorted(tx.read("t")["by"].to_pylist())


@pytest.mark.parametrize(
    ("mode", "after"), [("overwrite", ["late"]), ("append", ["early", "late"])]
)
def test_second_create_by_write_conflicts_and_succeeds_when_repeated(
    catalog: Catalog, mode: str, after: list[str]
) -> None:
    with (
        catalog.begin() as early,
        pytest.raises(VersionTakenError) as raised,
        catalog.begin() as late,
    ):
        early.write("t", rows("early"), mode=mode)
        late.write("t", rows("late"), mode=mode)
        early.commit()
    assert raised.value.table == "t"
    assert (raised.value.winning_version, raised.value.winning_txn_id) == (0, early.txn_id)
    assert "Repeat the transaction" in raised.value.help
    assert writers_of_rows(catalog) == ["early"]
    with catalog.begin() as again:
        again.write("t", rows("late"), mode=mode)
    assert writers_of_rows(catalog) == after


def test_files_of_a_write_that_lost_the_race_are_deleted(catalog: Catalog, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    with catalog.begin() as early, pytest.raises(VersionTakenError), catalog.begin() as late:
        for tx, by in ((early, "early"), (late, "late")):
            tx.write("t", rows(by), mode="overwrite", location=place)
        early.commit()
    assert len([*(tmp_path / "t").glob("*.parquet")]) == 1


def test_create_missing_fails_if_another_table_was_created_at_its_location(
    catalog: Catalog, tmp_path: Path
) -> None:
    place = str(tmp_path / "t")
    with catalog.begin() as late:
        catalog.create_table("t", rows("early").schema, location=place)
        with pytest.raises(VersionTakenError):
            late.create_missing("t", rows("late").schema, location=place)
        with pytest.raises(
            TableExistsError
        ):  # another name: repeating the transaction would not help
            late.create_missing("u", rows("late").schema, location=place)


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_write_that_requires_a_new_table_raises_table_exists(catalog: Catalog, mode: str) -> None:
    with catalog.begin() as early, pytest.raises(TableExistsError), catalog.begin() as late:
        early.write("t", rows("early"), mode=mode)
        late.write("t", rows("late"), mode=mode)
        early.commit()
    assert writers_of_rows(catalog) == ["early"]


@pytest.mark.parametrize("mode", ["overwrite", "ignore"])
@pytest.mark.parametrize("call", ["create", "write"])
def test_concurrent_create_or_replace_succeeds_or_conflicts(
    catalog_uri: DeltaSqlUri, tmp_path: Path, call: str, mode: Literal["overwrite", "ignore"]
) -> None:
    uri = replace(catalog_uri, table="t", location=str(tmp_path / "t")).to_string()
    deltasql.connect(catalog_uri, create=True).close()
    start, ends = Barrier(3), []

    def work(by: str) -> None:
        start.wait()
        try:
            if call == "write":
                deltasql.write_deltalake(uri, rows(by), mode=mode)
            else:
                deltasql.DeltaTable.create(uri, rows(by).schema, mode=mode)
        except Exception as error:
            ends.append(error)
        else:
            ends.append(None)

    threads = [Thread(target=work, args=(by,)) for by in "abc"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    table = deltasql.DeltaTable(uri)
    if mode == "ignore":  # the other calls do nothing
        assert (ends, table.version()) == ([None] * 3, 0)
    assert all(each is None or isinstance(each, CommitConflictError) for each in ends), ends
    assert mode == "ignore" or ends.count(None) == table.version() + 1
    assert table.count() == (call == "write")
    close_all()
