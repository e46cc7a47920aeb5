"""A published log can be read without the database, at any version and from any checkpoint kind."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.exceptions import (
    LogParseError,
    TxnLogProtocolError,
    TxnLogTableNotFoundError,
    VersionNotFoundError,
)
from deltasql.mirror.log.last_checkpoint import read_last_checkpoint
from deltasql.mirror.log.listing import list_log
from deltasql.mirror.log.read import read_state, read_states
from deltasql.mirror.log.read_checkpoint import read_files
from deltasql.storage import open_storage
from tests.mirror.published import CHECKPOINT, HEAD, copied_history, keep_history, storage_of
from tests.mirror.support import LOG, commit_path, forget_commits_below

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql.api.catalog.base import CatalogTable
    from deltasql.mirror.log.read import LogState


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return keep_history(tmp_path_factory.mktemp("history"))


@pytest.fixture
def table(kept: tuple[Path, Path]) -> Iterator[CatalogTable]:
    with copied_history(*kept) as catalog:
        yield catalog.table("t")


def facts(state: LogState) -> tuple[object, ...]:
    """Return the state without the order of files and without fields that a checkpoint lacks."""
    files = state.files.drop_columns(["data_change"]).sort_by("path").to_pylist()
    gone = state.tombstones.sort_by("path")["path"].to_pylist()
    return state.version, state.metadata, state.protocol, state.txns, state.domains, files, gone


def test_listing_finds_commits_checkpoints_and_hint(table: CatalogTable) -> None:
    listing = list_log(storage_of(table))
    assert sorted(listing.commits) == list(range(HEAD + 1))
    assert [each.version for each in listing.checkpoints] == [CHECKPOINT]
    assert (listing.first_version, listing.last_version) == (0, HEAD)
    hint = read_last_checkpoint(storage_of(table))
    assert hint is not None
    assert hint["version"] == CHECKPOINT


def test_state_is_the_same_with_and_without_the_checkpoint(table: CatalogTable) -> None:
    storage = storage_of(table)
    with_checkpoint = read_state(storage)
    alone = read_state(storage, use_checkpoint=False)
    assert with_checkpoint.checkpoint_version == CHECKPOINT
    assert alone.checkpoint_version is None
    assert facts(with_checkpoint) == facts(alone)
    assert alone.txns["etl"].version == 8
    assert alone.files.num_rows == 3


def test_states_read_together_equal_states_read_one_by_one(table: CatalogTable) -> None:
    storage = storage_of(table)
    together = [
        facts(state)
        for state in read_states(storage, range(HEAD + 1), use_checkpoint=False, tombstones=True)
    ]
    assert together == [facts(read_state(storage, version)) for version in range(HEAD + 1)]


def test_cleaned_log_is_read_from_its_checkpoint(table: CatalogTable) -> None:
    storage = storage_of(table)
    before = facts(read_state(storage, use_checkpoint=False))
    forget_commits_below(Path(table.location), CHECKPOINT)
    assert list_log(storage).first_version == CHECKPOINT
    assert facts(read_state(storage, use_checkpoint=False)) == before
    with pytest.raises(TxnLogProtocolError, match="versions 0 to 3 are missing"):
        read_state(storage, 3)


def test_multipart_checkpoint_is_read_when_complete(table: CatalogTable) -> None:
    storage, log = storage_of(table), Path(table.location) / LOG
    expected = facts(read_state(storage, CHECKPOINT))
    classic = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
    rows = pq.read_table(classic)
    half = rows.num_rows // 2
    parts = [rows.slice(0, half), rows.slice(half)]
    names = [f"{CHECKPOINT:020d}.checkpoint.{n:010d}.{2:010d}.parquet" for n in (1, 2)]
    pq.write_table(parts[0], log / names[0])
    classic.unlink()
    assert list_log(storage).checkpoints == ()
    pq.write_table(parts[1], log / names[1])
    (found,) = list_log(storage).checkpoints
    assert found.kind == "multipart"
    forget_commits_below(Path(table.location), CHECKPOINT + 1)
    assert facts(read_state(storage, CHECKPOINT)) == expected


@pytest.mark.parametrize("top", ["json", "parquet"])
def test_v2_checkpoint_is_read_with_its_sidecars(table: CatalogTable, top: str) -> None:
    storage, log = storage_of(table), Path(table.location) / LOG
    expected = facts(read_state(storage, CHECKPOINT))
    classic = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
    rows = pq.read_table(classic)
    classic.unlink()
    (log / "_sidecars").mkdir()
    sidecar = f"{uuid.uuid4()}.parquet"
    pq.write_table(rows.select(["add", "remove"]), log / "_sidecars" / sidecar)
    name = f"{CHECKPOINT:020d}.checkpoint.{uuid.uuid4()}.{top}"
    entry = {"path": sidecar, "sizeInBytes": 1, "modificationTime": 1}
    kept = ["metaData", "protocol", "txn", "domainMetadata"]
    if top == "json":
        actions = [
            {kind: each[kind]}
            for each in rows.select(kept).to_pylist(maps_as_pydicts="strict")
            for kind in kept
            if each[kind] is not None
        ]
        lines = [{"checkpointMetadata": {"version": CHECKPOINT}}, *actions, {"sidecar": entry}]
        (log / name).write_text("\n".join(json.dumps(line) for line in lines))
    else:
        # The row of one file becomes the row of the sidecar.
        spare = rows["add"].is_valid().to_pylist().index(True)
        sidecars = [None] * rows.num_rows
        sidecars[spare] = {**entry, "tags": None}
        column = pa.array(sidecars, rows.schema.field("sidecar").type)
        pq.write_table(rows.select(kept).append_column("sidecar", column), log / name)
    (found,) = list_log(storage).checkpoints
    assert found.kind == "v2"
    forget_commits_below(Path(table.location), CHECKPOINT + 1)
    assert facts(read_state(storage, CHECKPOINT)) == expected


def test_typed_statistics_are_converted_to_json(table: CatalogTable) -> None:
    storage, log = storage_of(table), Path(table.location) / LOG
    expected = read_state(storage, CHECKPOINT).files.sort_by("path")
    classic = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
    rows = pq.read_table(classic)
    adds = rows["add"].combine_chunks()
    parsed = pa.array(
        [
            None if each is None or not each["stats"] else json.loads(each["stats"])
            for each in adds.to_pylist()
        ]
    )
    names = [field.name for field in adds.type if field.name != "stats"]
    columns = [adds.field(name) for name in names]
    changed = pa.StructArray.from_arrays(
        [*columns, parsed], [*names, "stats_parsed"], mask=adds.is_null()
    )
    pq.write_table(rows.set_column(0, "add", changed), classic)
    forget_commits_below(Path(table.location), CHECKPOINT + 1)
    found = read_state(storage, CHECKPOINT).files.sort_by("path")
    assert found["num_records"].equals(expected["num_records"])
    assert [json.loads(text) for text in found["stats"].to_pylist()] == [
        json.loads(text) for text in expected["stats"].to_pylist()
    ]


def test_folder_without_a_log_is_not_a_table(tmp_path: Path) -> None:
    with pytest.raises(TxnLogTableNotFoundError, match="no Delta table"):
        read_state(open_storage(str(tmp_path)))


def test_error_names_a_missing_version(table: CatalogTable) -> None:
    commit_path(table.location, 7).unlink()
    with pytest.raises(TxnLogProtocolError, match="version 7 is missing"):
        read_state(storage_of(table))
    assert read_state(storage_of(table), 6).version == 6


def test_error_names_file_and_line_of_a_damaged_commit(table: CatalogTable) -> None:
    path = commit_path(table.location, 7)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], '{"add":', *lines[2:]]))
    with pytest.raises(LogParseError) as raised:
        read_state(storage_of(table))
    assert (raised.value.path, raised.value.line) == (f"{LOG}/{7:020d}.json", 2)


def test_error_names_a_damaged_checkpoint(table: CatalogTable) -> None:
    name = f"{CHECKPOINT:020d}.checkpoint.parquet"
    (Path(table.location) / LOG / name).write_bytes(b"PAR1 no")
    with pytest.raises(LogParseError, match=name):
        read_state(storage_of(table))


def test_unknown_version_is_rejected(table: CatalogTable) -> None:
    with pytest.raises(VersionNotFoundError) as raised:
        read_state(storage_of(table), HEAD + 1)
    assert raised.value.latest == HEAD


def test_int96_statistics_are_utc_and_decimals_exact(tmp_path: Path) -> None:
    price = Decimal("1234567890123456789.01")
    bounds = {"at": datetime(9999, 12, 31, 23, 59), "price": price}
    add = {"path": "a", "stats_parsed": {"numRecords": 1, "maxValues": bounds}}
    rows = pa.table({"add": [add]})
    pq.write_table(rows, tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    (found,) = read_files(open_storage(str(tmp_path)), "a.parquet", "add")
    max_values = '{"at":"9999-12-31T23:59:00.000Z","price":1234567890123456789.01}'
    assert found["stats"].to_pylist() == [f'{{"numRecords":1,"maxValues":{max_values}}}']
