"""Numbers of identity columns are unique, and high-water marks only move forward."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import MetadataChangedError, TxnLogSchemaError
from deltasql.model.schema.identity import MARK
from deltasql.model.schema.schema import schema_of
from deltasql.serve.write import log_store
from tests.commit.support import open_catalog, run, values
from tests.mirror.support import open_mirrored

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

T = "CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY{}, v STRING)"
ROWS, APPENDS = 3, 12


def rows(*texts: str) -> pa.Table:
    return pa.table({"v": list(texts)})


def append(catalog: Catalog, *texts: str) -> None:
    with catalog.begin() as tx:
        tx.write("t", rows(*texts))


def ids(catalog: Catalog) -> list[int]:
    return sorted(row["id"] for row in catalog.sql("SELECT id FROM t").to_pylist())


def mark(catalog: Catalog, version: int | None = None) -> int | None:
    (field, *_) = catalog.table("t").snapshot(version).schema.fields
    return field.metadata.get(MARK)


def check_numbers(catalog: Catalog, count: int, step: int = 1) -> None:
    found = ids(catalog)
    assert len(set(found)) == len(found) == count
    marks = [mark(catalog, n) for n in range(catalog.table("t").version() + 1)]
    known = [step * each for each in marks if each is not None]
    assert known == sorted(known)
    assert known[-1] == max(step * each for each in found)


@pytest.mark.parametrize("step", [1, -5])
def test_threads_never_get_the_same_number(catalog: Catalog, step: int) -> None:
    catalog.sql(T.format(f" (START WITH {step} INCREMENT BY {step})"))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: append(catalog, *[str(n)] * ROWS), range(APPENDS)))
    check_numbers(catalog, APPENDS * ROWS, step)
    assert ids(catalog) == sorted(step * n for n in range(1, APPENDS * ROWS + 1))  # no gap either


@pytest.fixture(params=["sqlite", "postgres"])
def uri(request: pytest.FixtureRequest) -> DeltaSqlUri:
    """A catalog that many processes can open, so it is not a DuckDB file."""
    return request.getfixturevalue(f"{request.param}_uri")


def append_in_process(barrier: Any, uri: DeltaSqlUri, folder: str, name: str) -> None:
    with open_catalog(uri, table={"data_root": folder}) as catalog:
        catalog.table("t").version()
        barrier.wait()
        for n in range(5):
            append(catalog, *[f"{name}-{n}"] * ROWS)


def test_processes_never_get_the_same_number(uri: DeltaSqlUri, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    with open_catalog(uri, table={"data_root": folder}) as catalog:
        catalog.sql(T.format(""))
        values(run(append_in_process, [(uri, folder, f"p{n}") for n in range(3)]))
        check_numbers(catalog, 3 * 5 * ROWS)


def test_transaction_keeps_its_numbers_although_others_commit_first(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    tx = catalog.begin()
    tx.write("t", rows("a", "b"))
    append(catalog, "c")
    assert mark(catalog) == 3
    tx.write("t", rows("d"))
    append(catalog, "e")
    tx.commit()
    found = {row["v"]: row["id"] for row in catalog.sql("SELECT * FROM t").to_pylist()}
    assert found == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
    check_numbers(catalog, 5)
    assert catalog.table("t").history()[0].info.is_blind_append


def killed_append(barrier: Any, uri: DeltaSqlUri, folder: str) -> None:
    with open_catalog(uri, table={"data_root": folder}) as catalog:
        catalog.begin().write("t", rows("lost", "lost"))
        barrier.wait()
        os._exit(9)


@pytest.mark.one_database
def test_numbers_of_a_killed_process_are_skipped(uri: DeltaSqlUri, tmp_path: Path) -> None:
    folder = str(tmp_path / "lake")
    with open_catalog(uri, table={"data_root": folder}) as catalog:
        catalog.sql(T.format(""))
        assert run(killed_append, [(uri, folder)])[0].exitcode == 9
        append(catalog, "kept")
        assert (ids(catalog), mark(catalog)) == ([3], 3)


@pytest.mark.one_database
def test_identity_values_of_a_rolled_back_transaction_are_not_used_again(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    tx = catalog.begin()
    tx.write("t", rows("a"))
    tx.rollback()
    append(catalog, "b")
    assert ids(catalog) == [2]


def test_commit_that_only_moves_the_high_water_mark_causes_no_conflict(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    append(catalog, "a", "b")
    other = catalog.begin()
    other.add_columns("t", pa.schema([("n", pa.int64())]))
    deletion = catalog.begin()
    deletion.delete("t", "v = 'a'")
    append(catalog, "c")
    deletion.commit()
    other.commit()
    assert (ids(catalog), mark(catalog)) == ([2, 3], 3)
    catalog.sql("INSERT INTO t (v) VALUES ('d')")
    assert ids(catalog) == [2, 3, 4]


@pytest.mark.one_database
def test_append_with_generated_numbers_conflicts_with_a_metadata_change(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    tx = catalog.begin()
    tx.write("t", rows("a"))
    catalog.sql("ALTER TABLE t ADD COLUMN n INT")
    append_after = catalog.begin()
    append_after.write("t", pa.table({"v": ["b"], "n": pa.nulls(1, pa.int32())}))
    with pytest.raises(MetadataChangedError):
        tx.commit()
    append_after.commit()
    assert ids(catalog) == [2]


def external_commit(catalog: Catalog, version: int, new_mark: int) -> None:
    """Commit through the LogStore as delta-spark does, which generates numbers from the mark."""
    metadata = catalog.table("t").snapshot().metadata
    schema = json.loads(metadata.schema_string)
    schema["fields"][0]["metadata"][MARK] = new_mark
    body = {**metadata.body(), "schemaString": json.dumps(schema)}
    now = catalog.table("t").history()[0].committed_at_ms + 1
    info = {"engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0", "operation": "WRITE"}
    times = {"timestamp": now, "inCommitTimestamp": now}
    lines = [{"commitInfo": {**info, **times}}, {"metaData": body}]
    actions = "\n".join(map(json.dumps, lines))
    location = catalog.table("t").location
    log_store.commit(catalog, {"location": location, "version": version, "actions": actions})


@pytest.fixture
def published(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Any:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        yield catalog


def test_append_conflicts_if_an_external_commit_may_have_used_its_numbers(
    published: Catalog,
) -> None:
    published.sql(T.format(""))
    early = published.begin()
    early.write("t", rows("a", "b"))  # 1 and 2, as the other writer
    external_commit(published, 1, 2)
    late = published.begin()
    late.write("t", rows("c"))
    with pytest.raises(MetadataChangedError, match="identity column 'id'"):
        early.commit()
    late.commit()
    assert (ids(published), mark(published)) == ([3], 3)


@pytest.mark.one_database
def test_restore_keeps_the_high_water_mark(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    append(catalog, "a", "b")
    catalog.sql("RESTORE TABLE t TO VERSION AS OF 0")
    assert mark(catalog) == 2
    append(catalog, "c")
    assert ids(catalog) == [3]


@pytest.mark.one_database
def test_replaced_table_generates_numbers_from_the_start(catalog: Catalog) -> None:
    catalog.sql(T.format(""))
    append(catalog, "a", "b")
    tx = catalog.begin()
    tx.write("t", rows("old"))
    catalog.sql(T.format("").replace("CREATE", "CREATE OR REPLACE"))
    append(catalog, "c")
    with pytest.raises(MetadataChangedError):
        tx.commit()
    assert (ids(catalog), mark(catalog)) == ([1], 1)


@pytest.mark.one_database
@pytest.mark.parametrize(("start", "step"), [((1 << 63) - 3, 2), (-(1 << 63) + 2, -2)])
def test_append_fails_when_the_column_has_no_numbers_left(
    catalog: Catalog, start: int, step: int
) -> None:
    catalog.sql(T.format(f" (START WITH {start} INCREMENT BY {step})"))
    append(catalog, "a", "b")
    with pytest.raises(TxnLogSchemaError, match="no more values"):
        append(catalog, "c")
    assert ids(catalog) == sorted([start, start + step])


@pytest.mark.one_database
def test_rollback_writes_a_high_water_mark_that_includes_reserved_numbers(
    published: Catalog,
) -> None:
    published.sql(T.format(""))
    append(published, "a")
    open_transaction = published.begin()
    open_transaction.write("t", rows("b", "c"))
    location = published.table("t").location
    assert published.rollback("t", dry_run=True).published == 1
    published.rollback("t")
    import deltalake

    schema = schema_of(deltalake.DeltaTable(location).schema().to_json())
    assert schema.fields[0].metadata[MARK] == 3
    with pytest.raises(deltasql.exceptions.TxnLogError):
        open_transaction.commit()
    published.import_table(location, name="t")
    append(published, "d")
    assert (ids(published), mark(published)) == ([1, 4], 4)
