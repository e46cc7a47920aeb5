"""Opening a table by URI: the class, versions and errors."""

from __future__ import annotations

import inspect
import json
import pickle
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

import deltasql
from deltasql import DeltaTable, write_deltalake
from deltasql.api.catalog.connect import is_new
from deltasql.api.deltalake_compat.handle.raw_table import RawTable
from deltasql.deltalake_internals import changed_methods
from deltasql.exceptions import (
    TxnLogError,
    TxnLogTableNotFoundError,
    TxnLogUriError,
    VersionNotFoundError,
)
from deltasql.spark.session import resolve_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql.uri import DeltaSqlUri
    from tests.api.conftest import Address


def numbers(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def uri(address: Address) -> str:
    """Return the URI of a table with three versions; each adds one row."""
    text = address("sales")
    write_deltalake(text, numbers(0))
    for version in (1, 2):
        write_deltalake(text, numbers(version), mode="append")
    return text


def with_parameter(uri: str, text: str) -> str:
    return f"{uri}{'&' if '?' in uri else '?'}{text}"


# The class


def parameters(function: Any) -> list[tuple[str, object, str]]:
    found = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, repr(each.default)) for each in found]


def test_every_method_has_the_signature_of_deltalake() -> None:
    for name, stock in inspect.getmembers(deltalake.DeltaTable):
        own = getattr(DeltaTable, name)
        if name.startswith("__") and name not in ("__init__", "__datafusion_table_provider__"):
            continue
        if isinstance(stock, property):
            assert isinstance(own, property), name
        else:
            assert parameters(own) == parameters(stock), name
    assert parameters(deltasql.QueryBuilder.register) == parameters(deltalake.QueryBuilder.register)


def test_merge_alter_and_optimize_have_the_methods_of_deltalake(uri: str) -> None:
    table = DeltaTable(uri)
    merger = table.merge(numbers(1), "t.id = s.id", source_alias="s", target_alias="t")
    for own, stock in (
        (merger, deltalake.table.TableMerger),
        (table.alter, deltalake.table.TableAlterer),
        (table.optimize, deltalake.table.TableOptimizer),
    ):
        assert isinstance(own, stock)
        for name, method in inspect.getmembers(stock, inspect.isfunction):
            assert parameters(getattr(type(own), name)) == parameters(method), name


def test_handle_has_every_method_of_deltalakes_raw_table() -> None:
    stock = deltalake._internal.RawDeltaTable
    assert changed_methods(RawTable) == {}
    # Daft and dask pass these arguments by position.
    transaction = parameters(RawTable.create_write_transaction)
    assert [each[0] for each in transaction[1:]] == [
        each[0] for each in parameters(stock.create_write_transaction)[1:]
    ]


def test_table_is_an_instance_of_the_class_of_deltalake(uri: str) -> None:
    table = DeltaTable(uri)
    assert isinstance(table, deltalake.DeltaTable)
    assert repr(table) == "DeltaTable()"
    assert table == DeltaTable(uri)
    assert table.__hash__ is None
    assert "secret" not in repr(table._table)


@pytest.mark.filterwarnings("ignore:The DeltaTableConfig class")
def test_deprecated_options_warn(uri: str) -> None:
    for option in ({"without_files": True}, {"log_buffer_size": 4}, {"skip_stats": True}):
        with pytest.warns(DeprecationWarning, match=next(iter(option))) as caught:
            DeltaTable(uri, **option)
        assert [Path(each.filename) for each in caught] == [Path(__file__)]
    with pytest.warns(DeprecationWarning, match="table_config"):
        assert DeltaTable(uri).table_config.without_files is False


def test_table_uri_is_the_folder_of_the_table(uri: str) -> None:
    table = DeltaTable(uri)
    assert table.table_uri.startswith("file:///")
    assert table.table_uri.endswith("/sales/")
    assert deltalake.DeltaTable(table.table_uri).version() == 2
    assert DeltaTable(table.table_uri).version() == 2


def test_write_by_folder_path_is_rejected(uri: str) -> None:
    place = DeltaTable(uri).table_uri
    for by_path in (deltalake.write_deltalake, write_deltalake):
        with pytest.raises(CommitFailedError, match="InCommitTimestamp"):
            by_path(place, numbers(9), mode="append")
    assert DeltaTable(uri).version() == 2


def test_pickled_table_opens_the_same_version(uri: str) -> None:
    table = DeltaTable(uri, version=1)
    copy = pickle.loads(pickle.dumps(table))
    assert isinstance(copy, DeltaTable)
    assert (copy.version(), copy.table_uri) == (1, table.table_uri)
    assert copy.to_pyarrow_table() == table.to_pyarrow_table()


def test_path_opens_a_plain_deltalake_table(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    deltalake.write_deltalake(place, numbers(1, 2))
    for address in (str(place), place):
        table = DeltaTable(address)
        assert type(table._table) is deltalake._internal.RawDeltaTable
        assert table.count() == 2
        assert table.to_pyarrow_table().num_rows == 2
        assert DeltaTable.is_deltatable(address)
        assert pickle.loads(pickle.dumps(table)).version() == 0
    created = DeltaTable.create(tmp_path / "other", pa.schema([("id", pa.int64())]))
    assert type(created) is DeltaTable
    assert not DeltaTable.is_deltatable(tmp_path / "nothing")
    with pytest.raises(TableNotFoundError):
        DeltaTable(tmp_path / "nothing")


def test_opening_runs_two_statements(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dialect: Any = DeltaTable(uri)._table.catalog.store.dialect
    names: list[str] = []
    session = dialect.session

    class Counted:
        def __init__(self, borrowed: Any) -> None:
            self._borrowed = borrowed

        def __getattr__(self, name: str) -> Any:
            return getattr(self._borrowed, name)

        def query(self, name: str, /, **values: Any) -> Any:
            names.append(name)
            return self._borrowed.query(name, **values)

    @contextmanager
    def counted() -> Iterator[Any]:
        with session() as borrowed:
            yield Counted(borrowed)

    monkeypatch.setattr(dialect, "session", counted)
    for arguments in ({}, {"version": 1}):
        names.clear()
        table = DeltaTable(uri, **arguments)
        assert table.version() == arguments.get("version", 2)
        assert len(names) == 2, names


# Missing tables


def test_opening_a_missing_table_raises_and_creates_nothing(address: Address) -> None:
    write_deltalake(address("sales"), numbers(1))
    for missing in (address("salse"), "deltasql://sqlite//no/such/meta.db?table=sales"):
        assert DeltaTable.is_deltatable(missing) is False
        with pytest.raises(TableNotFoundError, match="does not exist"):
            DeltaTable(missing)
    assert not Path("/no/such").exists()
    assert DeltaTable.is_deltatable(address("sales")) is True


def test_is_deltatable_does_not_create_a_database(tmp_path: Path) -> None:
    uri = f"deltasql://sqlite/{tmp_path}/new.db?table=t"
    assert DeltaTable.is_deltatable(uri) is False
    assert list(tmp_path.iterdir()) == []


def test_uri_must_be_a_string_with_a_table(tmp_path: Path) -> None:
    with pytest.raises(TxnLogUriError, match="names a catalog"):
        DeltaTable(f"deltasql://sqlite/{tmp_path}/meta.db")
    with pytest.raises(TxnLogUriError, match="double slashes"):
        DeltaTable(Path(f"deltasql://sqlite/{tmp_path}/meta.db?table=t"))


# Versions


def test_version_is_selected_by_argument_or_uri(uri: str) -> None:
    assert DeltaTable(uri).version() == 2
    assert DeltaTable(uri, version=0).version() == 0
    assert DeltaTable(with_parameter(uri, "version=1")).version() == 1
    assert DeltaTable(with_parameter(uri, "version=1"), version=0).version() == 0
    assert DeltaTable(uri, version=1).to_pyarrow_table()["id"].to_pylist() == [1, 0]


def test_timestamp_in_uri_selects_the_version(uri: str) -> None:
    table = DeltaTable(uri)
    at = datetime.fromtimestamp(table.history()[1]["timestamp"] / 1000, UTC)
    text = at.isoformat().replace("+00:00", "Z")
    assert DeltaTable(with_parameter(uri, f"timestamp={text}")).version() == 1
    with pytest.raises(VersionNotFoundError):
        DeltaTable(with_parameter(uri, "timestamp=2001-01-01T00:00:00Z"))


def test_load_as_version_accepts_versions_and_timestamps(uri: str) -> None:
    table = DeltaTable(uri)
    commits = {each["version"]: each["timestamp"] for each in table.history()}
    for version, milliseconds in commits.items():
        timestamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
        for way in (version, timestamp, timestamp.isoformat(), timestamp.replace(tzinfo=None)):
            table.load_as_version(way)
            assert table.version() == version
    table.load_as_version(datetime(2001, 1, 1, tzinfo=UTC))
    assert table.version() == 0
    table.load_as_version(datetime.now(UTC) + timedelta(days=1))
    assert table.version() == 2
    table.load_as_version(0)
    assert table._table.get_latest_version() == 2
    table.update_incremental()
    assert table.version() == 2


def test_missing_version_error_has_version_and_latest(uri: str) -> None:
    table = DeltaTable(uri)
    with pytest.raises(VersionNotFoundError, match="version 99 is not available") as caught:
        table.load_as_version(99)
    assert (caught.value.version, caught.value.latest) == (99, 2)
    assert isinstance(caught.value, DeltaError)
    with pytest.raises(DeltaError, match="not the same as the specified end version 99"):
        DeltaTable(uri, version=99)
    for refused in (lambda: table.load_as_version(-1), lambda: DeltaTable(uri, version=-1)):
        with pytest.raises(OverflowError):
            refused()
    for far in (lambda: table.load_as_version(2**63), lambda: DeltaTable(uri, version=2**63)):
        with pytest.raises(VersionNotFoundError):
            far()
    with pytest.raises(OverflowError):
        DeltaTable(uri, version=2**70)
    for text in ("yesterday", "2020-01-01", "2020-01-01T00:00:00"):
        with pytest.raises(ValueError, match="Failed to parse datetime string"):
            table.load_as_version(text)
    with pytest.raises(TypeError):
        table.load_as_version(1.5)  # type: ignore[arg-type]
    assert table.version() == 2


# Schema, metadata and history


def test_schema_metadata_and_config_equal_the_published_log(uri: str) -> None:
    own, stock = DeltaTable(uri), deltalake.DeltaTable(DeltaTable(uri).table_uri)
    assert own.schema() == stock.schema()
    for fact in ("id", "name", "partition_columns", "created_time"):
        assert getattr(own.metadata(), fact) == getattr(stock.metadata(), fact)
    assert own._table.table_config() == stock._table.table_config()


def test_in_commit_timestamps_are_shown_only_in_the_published_log(uri: str) -> None:
    own, stock = DeltaTable(uri), deltalake.DeltaTable(DeltaTable(uri).table_uri)
    assert "inCommitTimestamp" in (stock.protocol().writer_features or ())
    assert own.protocol() == (1, 2, None, None)
    expected = {"delta.enableInCommitTimestamps": "true", **own.metadata().configuration}
    assert expected == stock.metadata().configuration
    own.alter.set_table_properties({"delta.enableInCommitTimestamps": "false"})
    assert own.metadata().configuration["delta.enableInCommitTimestamps"] == "false"


def test_history_equals_the_log_up_to_the_opened_version(uri: str) -> None:
    own, stock = DeltaTable(uri), deltalake.DeltaTable(DeltaTable(uri).table_uri)
    assert own.history() == stock.history()
    assert own.history(2) == stock.history(2)
    assert own.history(0) == []
    older = DeltaTable(uri, version=1)
    assert [each["version"] for each in older.history()] == [1, 0]
    assert older.history(1) == own.history()[1:2]
    assert json.loads(own._table.history(1)[1][0])["operation"] == "WRITE"


def test_paged_history_is_complete(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    table = DeltaTable(uri)
    whole = table.history()
    monkeypatch.setattr("deltasql.snapshot.snapshot.HISTORY_PAGE", 2)
    assert table.history() == whole


def test_transaction_version_is_read_at_the_opened_version(uri: str) -> None:
    properties = deltasql.CommitProperties(app_transactions=[deltasql.Transaction("app", 7)])
    write_deltalake(uri, numbers(3), mode="append", commit_properties=properties)
    assert DeltaTable(uri).transaction_version("app") == 7
    assert DeltaTable(uri).transaction_version("other") is None
    assert DeltaTable(uri, version=2).transaction_version("app") is None


def test_merge_copies_columns_with_backquotes_in_their_names(address: Address) -> None:
    write_deltalake(address("quoted"), pa.table({"id": [1], "a`b": ["x"]}))
    table = DeltaTable(address("quoted"))
    merger = table.merge(pa.table({"id": [1, 2], "a`b": ["y", "z"]}), "s.id = t.id", "s", "t")
    merger.when_matched_update_all().when_not_matched_insert_all().execute()
    assert sorted(table.to_pyarrow_table()["a`b"].to_pylist()) == ["y", "z"]


@pytest.mark.two_databases
def test_reading_never_creates_a_catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> None:
    table = replace(catalog_uri, table="sales", location=str(tmp_path / "sales"))
    if catalog_uri.backend == "sqlite":
        Path(catalog_uri.database).touch()  # a database without a catalog
    calls: dict[str, Callable[[], object]] = {
        "DeltaTable": lambda: deltasql.DeltaTable(table.to_string()),
        "export": lambda: deltasql.export_table(table, tmp_path / "copy"),
        "DuckDB": lambda: deltasql.mirror_duckdb(catalog_uri, tmp_path / "views.duckdb"),
    }
    for name, call in calls.items():
        with pytest.raises(TxnLogError, match="no catalog"):
            call()
        assert is_new(catalog_uri), name
    with pytest.raises(TxnLogTableNotFoundError, match="no catalog"):
        resolve_uri(table)  # every read in deltasql.spark calls it
    assert not deltasql.DeltaTable.is_deltatable(table.to_string())
    assert is_new(catalog_uri)
    deltasql.write_deltalake(table.to_string(), pa.table({"id": [1]}))
    assert deltasql.DeltaTable(table.to_string()).count() == 1
