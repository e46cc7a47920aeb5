"""The error for an invalid log names its cause and location, and the catalog stays unchanged."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

import deltasql
from deltasql.config import StorageSettings
from deltasql.exceptions import (
    LogParseError,
    MissingDataFilesError,
    TxnLogError,
    TxnLogProtocolError,
    TxnLogStorageError,
    TxnLogTableNotFoundError,
    UnsupportedFeatureError,
    VersionGapError,
)
from deltasql.migrate.importing.load_table import can_resume
from deltasql.storage import open_storage
from deltasql.storage.base import LONGEST_READ, check_length
from tests.migrate.sources import (
    CHECKPOINT,
    HEAD,
    append,
    change_actions,
    checkpoint_file,
    copy_of,
    paths_at,
    stock_paths_at,
)
from tests.mirror.support import LOG, commit_path, forget_commits_below
from tests.troubleshooting import UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.model.progress import Progress

pytestmark = pytest.mark.one_database


def is_empty(catalog: Catalog) -> bool:
    """Assert that no table has any rows, visible or hidden; return True."""
    if catalog.store.dialect.name == "sqlite":
        with sqlite3.connect(catalog.uri.database) as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
            initial_tables = {"dl_migrations", "dl_meta", "dl_namespaces"}
            for name in names:
                if name.startswith("dl_") and name not in initial_tables and "." not in name:
                    found = _count(connection, name)
                    assert not found, f"{name} has {found} rows"
    return catalog.store.query("list_dropped") == [] == catalog.tables()


def _count(connection: sqlite3.Connection, name: str) -> int:
    try:
        return int(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0])
    except sqlite3.OperationalError:  # an index
        return 0


def assert_rejected(
    catalog: Catalog, source: Path, error: type[Exception], match: str, **options: Any
) -> Any:
    """Assert that a dry run and an import are refused; return the error."""
    with pytest.raises(error, match=match):
        catalog.import_table(str(source), dry_run=True, **options)
    with pytest.raises(error, match=match) as failure:
        catalog.import_table(str(source), **options)
    assert is_empty(catalog)
    assert "\nHelp: " in str(failure.value)
    return failure.value


def described(**fields: Any) -> dict[str, Any]:
    """Return the metaData action of a table with the column `id`."""
    column = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    body = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [column]}),
        "partitionColumns": [],
        "configuration": {},
    }
    return {"metaData": {**body, **fields}}


def added(path: str) -> dict[str, Any]:
    fields = {"partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    return {"add": {"path": path, **fields}}


BAD_ACTIONS: dict[str, list[dict[str, Any]]] = {
    "a schema that is no JSON": [described(schemaString="{")],
    "a schema without fields": [described(schemaString='{"type":"struct"}')],
    "an unknown partition column": [described(partitionColumns=["nope"])],
    "a path that leads out of the table": [added("../x.parquet")],
    "a way up inside of a path": [added("a/../../x.parquet")],
    "one file twice": [added("a.parquet"), added("a.parquet")],
}


@pytest.mark.parametrize("way", ["import", "import by force", "rebuild"])
@pytest.mark.parametrize("first", [True, False], ids=["in the first commit", "later"])
def test_rejected_import_leaves_no_rows(
    tmp_path: Path, catalog: Catalog, way: str, first: bool
) -> None:
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
    for number, (what, actions) in enumerate(BAD_ACTIONS.items()):
        lake = tmp_path / str(number)
        good, bad = [protocol, described()], actions
        if first:
            good = [protocol, *([] if "metaData" in actions[0] else [described()]), *actions]
            bad = [{"commitInfo": {"timestamp": 1}}]
        for version, commit in enumerate((good, bad)):
            path = commit_path(lake / "t", version)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{json.dumps(each)}\n" for each in commit))
        if way != "rebuild":
            with pytest.raises(TxnLogError):
                catalog.import_table(str(lake / "t"), force=way == "import by force")
        elif "schema" in what or "column" in what:  # a rebuild does not check data files
            (found,) = deltasql.rebuild(catalog, str(lake)).tables
            assert found.state == "failed", what
        else:
            continue
        assert is_empty(catalog), what


def test_import_interrupted_by_a_storage_failure_is_continued(
    source: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise TxnLogStorageError("the store does not answer", operation="list")

    with monkeypatch.context() as patched:
        patched.setattr("deltasql.migrate.importing.import_table.check_data", unreachable)
        with pytest.raises(TxnLogStorageError, match="does not answer"):
            catalog.import_table(str(source))
    report = catalog.import_table(str(source))
    assert any("where a run was interrupted" in note for note in report.notes)


def test_error_names_the_missing_version(source: Path, catalog: Catalog) -> None:
    checkpoint_file(source).unlink()
    commit_path(source, 3).unlink()
    error = assert_rejected(catalog, source, VersionGapError, "version 3 is missing")
    assert (error.first_missing, error.last_missing) == (3, 3)


def test_gap_after_the_last_checkpoint_is_rejected(source: Path, catalog: Catalog) -> None:
    commit_path(source, 5).unlink()
    assert_rejected(catalog, source, VersionGapError, "version 5 is missing")


@pytest.mark.parametrize("lost", [(3,), (2, 3), (CHECKPOINT,)])
def test_gap_before_a_checkpoint_needs_since(
    source: Path, catalog: Catalog, lost: tuple[int, ...]
) -> None:
    for version in lost:
        commit_path(source, version).unlink()
    error = assert_rejected(catalog, source, VersionGapError, f"--since {CHECKPOINT}")
    assert (error.first_missing, error.last_missing) == (lost[0], lost[-1])
    assert_rejected(catalog, source, VersionGapError, "has a gap", since=1)
    report = catalog.import_table(str(source), since=CHECKPOINT)
    assert (report.first_version, report.last_version) == (CHECKPOINT, HEAD)


def test_error_names_a_log_file_deleted_during_the_import(source: Path, catalog: Catalog) -> None:
    def lose(progress: Progress) -> None:
        if progress.phase == "loading":
            commit_path(source, 3).unlink(missing_ok=True)

    with pytest.raises(TxnLogStorageError, match=commit_path(source, 3).name) as failure:
        catalog.import_table(str(source), on_progress=lose)
    assert "\nHelp: " in str(failure.value)
    assert is_empty(catalog)


@pytest.mark.parametrize(
    ("kind", "version"), [("metaData", 0), ("protocol", 0)], ids=["metadata", "protocol"]
)
def test_log_without_initial_metadata_or_protocol_is_rejected(
    source: Path, catalog: Catalog, kind: str, version: int
) -> None:
    change_actions(source, version, lambda actions: [a for a in actions if kind not in a])
    error = assert_rejected(catalog, source, LogParseError, f"has no {kind} action")
    assert error.path == f"{LOG}/{version:020d}.json"


@pytest.mark.parametrize("version", [0, 2, HEAD])
def test_error_names_file_and_line_of_corrupt_json(
    source: Path, catalog: Catalog, version: int
) -> None:
    path = commit_path(source, version)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:1], lines[0][:-5]]))
    error = assert_rejected(catalog, source, LogParseError, path.name)
    assert (error.line, error.path) == (2, f"{LOG}/{path.name}")


def test_error_names_a_commit_file_without_json(source: Path, catalog: Catalog) -> None:
    commit_path(source, 1).write_bytes(b"\x00\x01 no JSON at all")
    error = assert_rejected(catalog, source, LogParseError, commit_path(source, 1).name)
    assert error.line == 1


def test_error_for_a_folder_of_tables_suggests_recursive(
    source: Path, tmp_path: Path, catalog: Catalog
) -> None:
    error = assert_rejected(
        catalog, tmp_path, TxnLogTableNotFoundError, f"it contains tables, such as {source.name}"
    )
    assert "--recursive" in (error.help or "")


def test_empty_commit_file_is_a_warning(source: Path, catalog: Catalog) -> None:
    """An empty commit is valid; usually its writer crashed."""
    commit_path(source, HEAD + 1).write_bytes(b"")
    report = catalog.import_table(str(source))
    assert report.warnings == [
        f"version {HEAD + 1} is an empty file: its writer may have crashed while writing it"
    ]
    assert catalog.table("events").version() == HEAD + 1


def test_folder_without_a_delta_table_is_rejected(tmp_path: Path, catalog: Catalog) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "part.parquet").write_bytes(b"PAR1")
    assert_rejected(
        catalog, tmp_path / "plain", TxnLogTableNotFoundError, "there is no Delta table at"
    )
    assert_rejected(
        catalog, tmp_path / "nowhere", TxnLogTableNotFoundError, "it does not exist or is empty"
    )
    (tmp_path / "plain" / LOG).mkdir()
    assert_rejected(catalog, tmp_path / "plain", TxnLogTableNotFoundError, "contains no commit")


@pytest.mark.parametrize("version", [0, 5])
def test_error_names_unknown_reader_features(source: Path, catalog: Catalog, version: int) -> None:
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors", "quantumColumns"],
        "writerFeatures": ["deletionVectors", "quantumColumns"],
    }
    change_actions(
        source,
        version,
        lambda actions: [{"protocol": protocol}, *(a for a in actions if "protocol" not in a)],
    )
    error = assert_rejected(catalog, source, UnsupportedFeatureError, "quantumColumns")
    assert error.features == ("quantumColumns",)


def test_unknown_writer_features_are_a_warning(source: Path, catalog: Catalog) -> None:
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["futureThing"]}
    change_actions(source, HEAD, lambda actions: [*actions, {"protocol": protocol}])
    report = catalog.import_table(str(source))
    assert any("futureThing" in warning for warning in report.warnings)
    assert catalog.table("events").version() == HEAD


def test_missing_data_files_are_an_error_without_force(source: Path, catalog: Catalog) -> None:
    gone = stock_paths_at(source, HEAD)[:2]
    for path in gone:
        (source / path).unlink()
    dry = catalog.import_table(str(source), dry_run=True)
    assert (dry.missing, sorted(dry.missing_files), dry.ok) == (2, gone, False)
    assert catalog.import_table(str(source), dry_run=True, force=True).ok
    assert gone[0] in dry.summary()
    with pytest.raises(MissingDataFilesError, match="2 data files") as failure:
        catalog.import_table(str(source))
    assert sorted(failure.value.files or ()) == gone
    assert gone[0] in str(failure.value)
    assert is_empty(catalog)
    report = catalog.import_table(str(source), force=True)
    assert (report.state, report.missing, report.ok) == ("imported", 2, True)
    assert report.to_dict()["missing_files"] == report.missing_files
    assert catalog.table("events").version() == HEAD


def test_missing_files_of_older_versions_are_allowed(source: Path, catalog: Catalog) -> None:
    old = set(stock_paths_at(source, 1)) - set(stock_paths_at(source, HEAD))
    assert old
    for path in old:
        (source / path).unlink()
    assert catalog.import_table(str(source)).ok


def test_force_does_not_accept_a_corrupt_log(source: Path, catalog: Catalog) -> None:
    commit_path(source, 2).write_text("{")
    assert_rejected(catalog, source, LogParseError, commit_path(source, 2).name, force=True)


@pytest.mark.parametrize("damage", ["json", "feature", "data", "gap"])
def test_failed_import_leaves_an_existing_table_unchanged(
    source: Path, catalog: Catalog, damage: str
) -> None:
    catalog.import_table(str(source))
    for number in range(3):
        append(source, 60 + number)
    wrong: type[TxnLogProtocolError]
    if damage == "json":
        wrong = LogParseError
        commit_path(source, HEAD + 2).write_text("{")
    elif damage == "feature":
        wrong = UnsupportedFeatureError
        protocol = {"minReaderVersion": 4, "minWriterVersion": 7}
        change_actions(source, HEAD + 2, lambda actions: [*actions, {"protocol": protocol}])
    elif damage == "data":
        wrong = MissingDataFilesError
        new = set(stock_paths_at(source, HEAD + 2)) - set(stock_paths_at(source, HEAD + 1))
        (source / new.pop()).unlink()
    else:
        wrong = VersionGapError
        commit_path(source, HEAD + 2).unlink()
    with pytest.raises(wrong):
        catalog.import_table(str(source))
    assert catalog.table("events").version() == HEAD
    assert paths_at(catalog, "events", HEAD) == stock_paths_at(source, HEAD)


# Checkpoints


def corrupt(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def stale(path: Path, source: Path) -> None:
    """Replace a checkpoint with that of an older version."""
    copy = source.parent / "older"
    copy_of(source, copy)
    checkpoint_file(copy).unlink()
    (copy / LOG / "_last_checkpoint").unlink()
    for version in range(3, HEAD + 1):
        commit_path(copy, version).unlink()
    deltalake.DeltaTable(str(copy)).create_checkpoint()
    path.write_bytes(checkpoint_file(copy, 2).read_bytes())


@pytest.mark.parametrize("damage", ["corrupt", "stale"])
def test_damaged_checkpoint_is_a_warning_if_the_commits_exist(
    source: Path, catalog: Catalog, damage: str
) -> None:
    path = checkpoint_file(source)
    if damage == "corrupt":
        corrupt(path)
    else:
        stale(path, source)
    report = catalog.import_table(str(source))
    assert (report.first_version, report.commits) == (0, HEAD + 1)
    assert any("checkpoint" in warning for warning in report.warnings), report.summary()
    for version in range(HEAD + 1):
        assert len(paths_at(catalog, "events", version)) > 0


def two_checkpoints(source: Path) -> None:
    """Write a second checkpoint at the head, and delete the commits before the first."""
    deltalake.DeltaTable(str(source)).create_checkpoint()
    forget_commits_below(source, CHECKPOINT)


def test_import_uses_a_later_checkpoint_if_the_first_is_damaged(
    source: Path, catalog: Catalog
) -> None:
    two_checkpoints(source)
    corrupt(checkpoint_file(source))
    report = catalog.import_table(str(source))
    assert (report.first_version, report.last_version) == (HEAD, HEAD)
    assert any(f"checkpoint {CHECKPOINT} cannot be used" in each for each in report.warnings)
    assert paths_at(catalog, "events", HEAD) == stock_paths_at(source, HEAD)


def test_cleaned_log_without_a_valid_checkpoint_is_rejected(source: Path, catalog: Catalog) -> None:
    forget_commits_below(source, CHECKPOINT)
    corrupt(checkpoint_file(source))
    error = assert_rejected(catalog, source, LogParseError, checkpoint_file(source).name)
    assert error.path == f"{LOG}/{checkpoint_file(source).name}"


@pytest.mark.parametrize("text", ["{", '{"version": "six"}', '{"version": 99, "size": 1}'])
def test_wrong_checkpoint_hint_is_a_warning(source: Path, catalog: Catalog, text: str) -> None:
    (source / LOG / "_last_checkpoint").write_text(text)
    report = catalog.import_table(str(source))
    assert report.ok
    assert any("_last_checkpoint" in each for each in report.warnings), report.summary()


def test_incomplete_multipart_checkpoint_is_ignored(source: Path, catalog: Catalog) -> None:
    whole = checkpoint_file(source)
    part = whole.with_name(f"{CHECKPOINT:020d}.checkpoint.0000000001.0000000002.parquet")
    whole.rename(part)
    assert catalog.import_table(str(source)).first_version == 0


def test_unknown_action_is_reported(source: Path, catalog: Catalog) -> None:
    change_actions(source, 2, lambda actions: [*actions, {"hologram": {"size": 1}}])
    report = catalog.import_table(str(source))
    assert "hologram (1)" in report.summary()


def test_missing_files_outside_the_folder_of_the_table_are_found(
    source: Path, catalog: Catalog
) -> None:
    live = stock_paths_at(source, HEAD)
    elsewhere = source.parent / "elsewhere"
    elsewhere.mkdir()
    (source / live[0]).rename(elsewhere / "moved.parquet")

    def moved(actions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for each in actions:
            if each.get("add", {}).get("path") == live[0]:
                each["add"]["path"] = f"file://{elsewhere}/moved.parquet"
        return actions

    for version in range(HEAD + 1):
        change_actions(source, version, moved)
    checkpoint_file(source).unlink()
    assert catalog.import_table(str(source), dry_run=True).missing == 0
    (source / live[1]).unlink()
    with pytest.raises(MissingDataFilesError, match="1 data files") as failure:
        catalog.import_table(str(source))
    assert failure.value.files == (live[1],)
    (elsewhere / "moved.parquet").unlink()
    assert catalog.import_table(str(source), dry_run=True).missing == 2


def test_import_can_resume_after_an_outage_but_not_after_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    storage = open_storage(str(tmp_path))
    far = open_storage("s3://lake", StorageSettings(options=UNREACHABLE, retries=0))
    refusals: dict[str, Callable[[], object]] = {
        "too large": lambda: check_length(LONGEST_READ + 1, "a", "/lake"),
        "outside the folder": lambda: storage.read("../a"),
        "a path out of the table": lambda: storage.data_name("../a.parquet"),
        "a path of another place": lambda: storage.data_name("s3://lake/a.parquet"),
        "a pipe": lambda: storage.read("pipe"),
        "missing": lambda: storage.read("a"),
    }
    outages: dict[str, Callable[[], object]] = {
        "a bucket that is shut": lambda: far.read("a"),
        "an error of the disk": lambda: storage.read("folder"),
    }
    for name, call in (*refusals.items(), *outages.items()):
        with pytest.raises(OSError) as raised:
            call()
        assert can_resume(raised.value) == (name in outages), name
