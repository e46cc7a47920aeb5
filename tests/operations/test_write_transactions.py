"""A transaction sees its own writes; other readers see them only after the commit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import (
    ConcurrentAppendError,
    InvalidDataError,
    TableExistsError,
    TxnLogSchemaError,
)

if TYPE_CHECKING:
    from deltasql import Catalog, MultiTableTransaction

pytestmark = pytest.mark.two_databases

ROWS = pa.table({"id": [1, 2], "name": ["x", "y"]})
MORE = pa.table({"id": [3], "name": ["z"]})


def ids(tx: MultiTableTransaction, table: str = "t", predicate: str | None = None) -> list[int]:
    return sorted(tx.read(table, ["id"], predicate)["id"].to_pylist())


def test_transaction_sees_its_own_writes(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    with catalog.begin() as tx:
        assert ids(tx) == [1, 2]
        tx.write("t", MORE)
        assert ids(tx) == [1, 2, 3]
        tx.write(
            "t", pa.table({"id": [9], "name": ["x"]}), mode="overwrite", predicate="name = 'x'"
        )
        assert ids(tx) == [2, 3, 9]
        assert ids(tx, predicate="id > 2") == [3, 9]
        tx.write("t", MORE.append_column("more", [[1]]), schema_mode="merge")
        assert tx.read("t", predicate="more = 1").to_pylist() == [{"id": 3, "name": "z", "more": 1}]
        with catalog.begin() as other:
            assert ids(other) == [1, 2]
    assert tx.versions == {"t": 1}
    with catalog.begin() as tx:
        assert ids(tx) == [2, 3, 3, 9]


def test_tables_created_in_a_transaction_can_be_read_and_written(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.create_table("a", ROWS.schema, partition_by=["name"])
        tx.write("a", ROWS)
        tx.write("b", ROWS, partition_by="name", mode="error")
        tx.write("b", MORE, mode="overwrite")
        tx.stage_table("c", MORE)
        assert (ids(tx, "a"), ids(tx, "b"), ids(tx, "c")) == ([1, 2], [3], [3])
        with pytest.raises(TableExistsError, match="A table already exists at"):
            tx.write("b", ROWS, mode="error")
        assert tx.write("b", ROWS, mode="ignore") == {}
    assert tx.versions == {"a": 0, "b": 0, "c": 0}
    assert catalog.table("b").snapshot().partition_columns == ("name",)


def test_stage_table_accepts_rows(catalog: Catalog) -> None:
    import pandas
    import polars

    catalog.create_table("t", ROWS.schema)
    with catalog.begin() as tx:
        tx.stage_table("t", pandas.DataFrame({"id": [1], "name": ["a"]}))
        tx.stage_table("t", polars.DataFrame({"id": [2], "name": ["b"]}))
        tx.stage_table("t", MORE.to_batches())
        assert ids(tx) == [1, 2, 3]


def test_files_replaced_in_the_same_transaction_are_deleted(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", ROWS)
        tx.write("t", MORE, mode="overwrite")
    place = Path(catalog.table("t").location)
    assert len(list(place.glob("*.parquet"))) == 1
    assert catalog.store.intents_before(2**60) == []


@pytest.mark.parametrize("partition_by", [None, ["name"]])
def test_aborted_transaction_leaves_no_files_or_intents(
    catalog: Catalog, tmp_path: Path, partition_by: list[str] | None
) -> None:
    with pytest.raises(RuntimeError, match="no"), catalog.begin() as tx:
        tx.write("t", ROWS, partition_by=partition_by)
        tx.write("t", MORE)
        raise RuntimeError("no")
    assert list(tmp_path.rglob("*.parquet")) == []
    assert catalog.store.intents_before(2**60) == []
    assert not catalog.exists("t")


def test_rejected_write_leaves_no_files_or_intents(catalog: Catalog, tmp_path: Path) -> None:
    rule = {"delta.constraints.positive": "id > 0"}
    catalog.create_table("t", ROWS.schema, properties=rule)
    with pytest.raises(InvalidDataError), catalog.begin() as tx:
        tx.write("t", ROWS)
        tx.write("t", pa.table({"id": [-1], "name": ["q"]}))
    assert list(tmp_path.rglob("*.parquet")) == []
    assert catalog.store.intents_before(2**60) == []


def test_concurrent_append_matching_a_read_predicate_conflicts(catalog: Catalog) -> None:
    catalog.create_table("t", ROWS.schema, properties={"delta.isolationLevel": "Serializable"})
    with catalog.begin() as tx:
        tx.write("t", ROWS)
    with pytest.raises(ConcurrentAppendError), catalog.begin() as tx:
        assert ids(tx, predicate="id = 1") == [1]
        tx.write("t", MORE)
        with catalog.begin() as other:
            other.write("t", pa.table({"id": [1], "name": ["q"]}))


def test_read_of_unknown_column_is_rejected(catalog: Catalog) -> None:
    catalog.create_table("t", ROWS.schema)
    with catalog.begin() as tx, pytest.raises(TxnLogSchemaError, match="No field named nam"):
        tx.read("t", ["nam"])


def test_plain_appends_do_not_start_an_engine(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", ROWS)
        tx.write("t", ROWS.to_reader())
        tx.write("t", pa.table({"id": ["7"], "name": pa.array(["q"]).dictionary_encode()}))
        tx.write("t", ROWS, mode="overwrite")
        assert tx._staging.engines == {}


def test_deltalake_reads_tables_written_in_one_transaction(
    catalog_uri: object, tmp_path: Path
) -> None:
    import deltasql

    with deltasql.connect(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as catalog:  # type: ignore[arg-type]
        with catalog.begin() as tx:
            tx.write("a", ROWS)
            tx.write("b", MORE)
        for name, count in (("a", 2), ("b", 1)):
            table = deltalake.DeltaTable(catalog.table(name).location)
            assert table.to_pyarrow_table().num_rows == count
