"""`changes` returns the row changes of versions of any table; no table property is needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

import deltasql
from deltasql.exceptions import TxnLogSchemaError, VersionNotFoundError
from tests.oracles.deletion_vectors import inline_vector
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltasql import Catalog

pytestmark = pytest.mark.two_databases

OWN = ("_change_type", "_commit_version", "_commit_timestamp")


def rows(ids: Iterable[int | None], text: str = "a") -> pa.Table:
    numbers = list(ids)
    return pa.table(
        {"id": pa.array(numbers, pa.int64()), "text": pa.array([text] * len(numbers), pa.string())}
    )


def write(catalog: Catalog, data: pa.Table, mode: str = "append", table: str = "t") -> int:
    with catalog.begin() as tx:
        tx.write(table, data, mode=mode)
    return tx.versions[table]


def count_changes(
    catalog: Catalog, first: int, last: int | None = None, **options: Any
) -> Counter[Any]:
    """Return the changes as (id, change type, version) with their counts."""
    found = catalog.changes("t", first, last, **options).read_all()
    columns = [found[name].to_pylist() for name in ("id", "_change_type", "_commit_version")]
    return Counter(zip(*columns, strict=True))


@pytest.fixture
def table(catalog: Catalog) -> Catalog:
    catalog.create_table("t", rows([]).schema)
    return catalog


def test_rows_of_an_append_are_inserts_with_version_and_time(table: Catalog) -> None:
    write(table, rows([1, 2]))
    found = table.changes("t", 0).read_all()
    snapshot = table.table("t").snapshot()
    assert found.schema.names == ["id", "text", *OWN]
    assert found["_change_type"].to_pylist() == ["insert"] * 2
    assert found["_commit_version"].to_pylist() == [1, 1]
    assert set(found["_commit_timestamp"].to_pylist()) == {snapshot.committed_at}


def test_overwrite_reports_no_change_for_rows_that_stay(table: Catalog) -> None:
    write(table, rows([1, 2, 2, 3, None]))
    write(table, rows([2, 2, 2, None, 4]), mode="overwrite")
    assert count_changes(table, 2) == {
        (1, "delete", 2): 1,
        (3, "delete", 2): 1,
        (2, "insert", 2): 1,
    } | {(4, "insert", 2): 1}


def test_compaction_reports_no_changes(table: Catalog) -> None:
    write(table, rows([1]))
    write(table, rows([2]))
    moved = table.table("t").snapshot().scan().arrow.to_pylist()
    location = Path(table.table("t").location)
    both = pa.concat_tables([pq.read_table(location / each["path"]) for each in moved])
    pq.write_table(both, location / "both.parquet")
    removes = [
        deltasql.RemoveFile(path=each["path"], data_change=False, deletion_timestamp=0)
        for each in moved
    ]
    size = (location / "both.parquet").stat().st_size
    add = deltasql.AddFile(
        path="both.parquet", partition_values={}, size=size, modification_time=0, data_change=False
    )
    with table.begin() as tx:
        tx.stage_table("t", [*removes, add], read_version=2, operation="OPTIMIZE")
    assert count_changes(table, 3) == {}
    assert count_changes(table, 0) == {(1, "insert", 1): 1, (2, "insert", 2): 1}


def test_changes_are_in_version_order_up_to_the_end_version(table: Catalog) -> None:
    for number in range(1, 8):
        write(table, rows([number]), mode="append" if number % 3 else "overwrite")
    found = table.changes("t", 2, 6).read_all()["_commit_version"].to_pylist()
    assert found == sorted(found)
    assert set(found) == {2, 3, 4, 5, 6}


def test_columns_and_predicate_filter_changes(table: Catalog) -> None:
    write(table, rows([1, 2, 3]))
    write(table, rows([3, 4]), mode="overwrite")
    found = table.changes("t", 0, columns=["_change_type", "id"], predicate="id >= 3").read_all()
    assert found.schema.names == ["_change_type", "id"]
    assert sorted(map(tuple, found.to_pandas().to_numpy().tolist())) == [
        ("insert", 3),
        ("insert", 4),
    ]
    by_kind = count_changes(table, 0, predicate="_change_type = 'delete' AND _commit_version = 2")
    assert by_kind == {(1, "delete", 2): 1, (2, "delete", 2): 1}
    with pytest.raises(TxnLogSchemaError, match="No field named nope"):
        table.changes("t", 0, columns=["nope"])


def test_changes_of_removed_files_have_partition_values(catalog: Catalog) -> None:
    catalog.create_table("t", rows([]).schema, partition_by=["text"])
    write(catalog, pa.concat_tables([rows([1], "x"), rows([2], "y z")]))
    write(catalog, rows([3], "x"), mode="overwrite")
    found = catalog.changes("t", 2, predicate="text <> 'q'").read_all().to_pylist()
    changed_rows = {(row["id"], row["text"], row["_change_type"]) for row in found}
    assert changed_rows == {(1, "x", "delete"), (2, "y z", "delete"), (3, "x", "insert")}
    assert catalog.changes("t", 1, predicate="text = 'y z'").read_all().num_rows == 2


def test_file_removed_and_added_again_is_reported_each_time(table: Catalog) -> None:
    write(table, rows([1, 2]))
    file = table.table("t").snapshot().scan().files[0]
    add = deltasql.AddFile(
        path=file.path, partition_values={}, size=file.size, modification_time=0, stats=file.stats
    )
    remove = deltasql.RemoveFile(path=file.path, deletion_timestamp=0)
    for actions in ([remove], [add], [remove], [add]):
        with table.begin() as tx:
            tx.stage_table("t", actions, operation="RESTORE")
    kinds = {1: "insert", 2: "delete", 3: "insert", 4: "delete", 5: "insert"}
    assert count_changes(table, 0) == {
        (number, kind, version): 1 for version, kind in kinds.items() for number in (1, 2)
    }


def test_deleted_data_file_error_names_first_readable_version(
    table: Catalog,
) -> None:
    write(table, rows([1]))
    write(table, rows([2]), mode="overwrite")
    write(table, rows([3]))
    (gone,) = set(Path(table.table("t").location).glob("*.parquet")) - {
        Path(table.table("t").location) / path for path in table.table("t").scan().paths()
    }
    gone.unlink()
    with pytest.raises(VersionNotFoundError, match="Start at version 3 or later") as caught:
        table.changes("t", 0).read_all()
    assert caught.value.version == 1
    assert count_changes(table, 3) == {(3, "insert", 3): 1}


def test_versions_that_do_not_exist_are_rejected(table: Catalog) -> None:
    write(table, rows([1]))
    with pytest.raises(VersionNotFoundError, match="no version 9"):
        table.changes("t", 0, 9)
    with pytest.raises(VersionNotFoundError, match="Start version 3 is greater than end version 1"):
        table.changes("t", 3)
    with pytest.raises(VersionNotFoundError, match="Start at version 0 or later"):
        table.changes("t", -1)


def test_changes_use_current_names_of_renamed_columns(catalog: Catalog) -> None:
    mapped = {"delta.columnMapping.mode": "name"}
    catalog.create_table("t", rows([]).schema, partition_by=["text"], properties=mapped)
    write(catalog, pa.concat_tables([rows([1], "x"), rows([2], "y")]))
    with catalog.begin() as tx:
        tx.rename_column("t", "id", "number")
        tx.rename_column("t", "text", "kind")
    write(catalog, pa.table({"number": [3], "kind": ["y"]}), mode="overwrite")
    found = catalog.changes("t", 0, predicate="number > 0").read_all().to_pylist()
    assert {(row["number"], row["kind"], row["_change_type"]) for row in found} == {
        (1, "x", "insert"),
        (2, "y", "insert"),
        (1, "x", "delete"),
        (2, "y", "delete"),
        (3, "y", "insert"),
    }


def test_rows_removed_by_a_deletion_vector_are_deletes(catalog: Catalog) -> None:
    enabled = {"delta.enableDeletionVectors": "true"}
    catalog.create_table("t", rows([]).schema, properties=enabled)
    write(catalog, rows([1, 2, 3]))
    file = catalog.table("t").snapshot().scan().files[0]
    add = deltasql.AddFile(
        path=file.path,
        partition_values={},
        size=file.size,
        modification_time=0,
        stats=file.stats,
        deletion_vector=inline_vector([1]),
    )
    remove = deltasql.RemoveFile(path=file.path, deletion_timestamp=0)
    with catalog.begin() as tx:
        tx.stage_table("t", [remove, add], operation="DELETE")
    assert count_changes(catalog, 2) == {(2, "delete", 2): 1}


def test_number_of_statements_does_not_depend_on_number_of_versions(
    table: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        write(table, rows([number]))
    statements: list[str] = []
    query = table.store.query

    def counted(name: str, /, **params: Any) -> Any:
        statements.append(name)
        return query(name, **params)

    monkeypatch.setattr(table.store, "query", counted)
    counts = []
    for last in (1, 12):
        statements.clear()
        assert sum(count_changes(table, 0, last).values()) == last
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_large_overwrite_reports_only_the_row_that_changed(table: Catalog) -> None:
    write(table, rows(range(50_000)))
    write(table, rows([*range(1, 50_000), -7]), mode="overwrite")
    assert count_changes(table, 2) == {(0, "delete", 2): 1, (-7, "insert", 2): 1}


class _Model:
    """Keeps the expected ids of every version as a multiset."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.versions = [Counter[int]()]

    def step(self, kind: str, ids: Sequence[int]) -> None:
        now = self.versions[-1]
        if kind == "append":
            write(self.catalog, rows(ids))
            after = now + Counter(ids)
        elif kind == "overwrite":
            write(self.catalog, rows(ids), mode="overwrite")
            after = Counter(ids)
        else:
            wanted = f"id IN ({', '.join(map(str, ids)) or '-1'})"
            with self.catalog.begin() as tx:
                tx.delete("t", wanted)
            after = Counter({each: n for each, n in now.items() if each not in ids})
            if after == now:
                return
        self.versions.append(after)


steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "overwrite", "delete"]),
        st.lists(st.integers(0, 5), min_size=1, max_size=5),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(20), deadline=None)
@given(steps=steps, data=st.data())
def test_changes_applied_to_a_snapshot_give_the_later_snapshot(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[str, list[int]]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("changes")
    with deltasql.connect(f"deltasql://sqlite/{folder}/m.db", mirror={"mode": "off"}) as catalog:
        catalog.create_table("t", rows([]).schema)
        model = _Model(catalog)
        for kind, ids in steps:
            model.step(kind, ids)
        last = catalog.table("t").version()
        assert last == len(model.versions) - 1
        first = data.draw(st.integers(0, last))
        state = model.versions[first].copy()
        seen = count_changes(catalog, first + 1, last) if first < last else Counter[Any]()
        for (number, kind, _), times in seen.items():
            state[number] += times if kind == "insert" else -times
        assert +state == model.versions[last]
        assert min(state.values(), default=0) >= 0
