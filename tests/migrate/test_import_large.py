"""Large tables are verified in parts, and a damaged checkpoint is still only a warning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pyarrow.parquet as pq
import pytest

from deltasql.exceptions import TxnLogMirrorError
from deltasql.store.locations import tables_at
from tests.migrate.sources import (
    CHECKPOINT,
    HEAD,
    append,
    checkpoint_file,
    paths_at,
    stock_paths_at,
)
from tests.mirror.support import commit_path, forget_commits_below

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog

pytestmark = pytest.mark.one_database


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltasql.verify.large_tables._LARGE", 2)
    monkeypatch.setattr("deltasql.verify.sql_state._PAGE", 3)


@pytest.mark.parametrize("is_cleaned", [False, True], ids=["whole", "cleaned"])
def test_large_table_is_verified_in_parts(source: Path, catalog: Catalog, is_cleaned: bool) -> None:
    if is_cleaned:
        forget_commits_below(source, CHECKPOINT)
    report = catalog.import_table(str(source), batch_size=2)
    found = report.verification
    assert found is not None
    assert found.ok
    assert found.notes == ["too many files to compare with deltalake and checkpoint by checkpoint"]
    assert found.commits == (HEAD - CHECKPOINT if is_cleaned else HEAD + 1)
    assert paths_at(catalog, "events", HEAD) == stock_paths_at(source, HEAD)
    append(source, 70)
    again = catalog.import_table(str(source))
    assert again.verification is not None
    assert again.verification.ok


def test_damaged_checkpoint_of_a_large_table_is_a_warning(source: Path, catalog: Catalog) -> None:
    checkpoint_file(source).write_bytes(b"PAR1 and no more")
    report = catalog.import_table(str(source))
    assert report.ok
    assert any(f"checkpoint {CHECKPOINT} cannot be used" in each for each in report.warnings)


def test_import_uses_a_later_checkpoint_if_file_rows_of_the_first_are_damaged(
    source: Path, catalog: Catalog
) -> None:
    """Only the columns of files are damaged, which is found when these columns are loaded."""
    deltalake.DeltaTable(str(source)).create_checkpoint()
    forget_commits_below(source, CHECKPOINT)
    path = checkpoint_file(source)
    path.write_bytes(_with_broken_files(path))
    report = catalog.import_table(str(source))
    assert report.first_version == HEAD
    assert any(f"checkpoint {CHECKPOINT} cannot be used" in each for each in report.warnings)
    assert len(tables_at(catalog.store.query, str(source))) == 1
    assert paths_at(catalog, "events", HEAD) == stock_paths_at(source, HEAD)


def test_cutover_and_rollback_verify_a_large_table_in_parts(source: Path, catalog: Catalog) -> None:
    catalog.follow(str(source))
    taken, left = catalog.cutover("events"), catalog.rollback("events")
    for found in (taken.verification, left.verification):
        assert found is not None
        assert found.ok
        assert "checkpoint by checkpoint" in found.notes[-1]


@pytest.mark.parametrize("damage", ["a commit is gone", "a checkpoint lacks files"])
def test_rollback_of_a_large_table_with_a_damaged_log_is_rejected(
    source: Path, catalog: Catalog, damage: str
) -> None:
    catalog.follow(str(source))
    catalog.cutover("events")
    catalog.mirror.checkpoint("events")
    if damage == "a commit is gone":
        commit_path(source, HEAD).unlink()
    else:
        path = checkpoint_file(source, HEAD + 1)
        content = pq.read_table(path)
        pq.write_table(content.filter(content["add"].is_null()), path)
    with pytest.raises(TxnLogMirrorError, match="mirror repair"):
        catalog.rollback("events")
    assert catalog.exists("events")


def _with_broken_files(path: Path) -> bytes:
    """Return a checkpoint whose pages with files are overwritten."""
    data = bytearray(path.read_bytes())
    group = pq.ParquetFile(path).metadata.row_group(0)
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema.startswith("add."):
            first = column.dictionary_page_offset or column.data_page_offset
            data[first : first + column.total_compressed_size] = b"\xff" * (
                column.total_compressed_size
            )
    return bytes(data)
