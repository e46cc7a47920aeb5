"""Damage to a log after a power loss is found by status and doctor, and fixed by repair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

import deltasql
from deltasql.api.inspect.doctor import doctor
from deltasql.verify import quick_check
from deltasql.verify.report import Differences
from tests.migrate.handwritten import PROTOCOL, HandwrittenTable, column, metadata
from tests.mirror.published import CHECKPOINT, HEAD, append, storage_of
from tests.mirror.support import LOG, commit_path, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def first_line(data: bytes) -> bytes:
    return data.splitlines(keepends=True)[0]


COMMITS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "zeros": lambda data: b"\0" * len(data),
    "cut off": half,
    "cut off, then zeros": lambda data: half(data).ljust(len(data), b"\0"),
    "one line of many": first_line,
    "no JSON": lambda _: b"\x89PNG",
}


def check_found_and_repaired(catalog: Catalog, message: str) -> None:
    """Assert that status, doctor and verify report the damage, and that a repair fixes it."""
    table = catalog.table("t")
    (found,) = catalog.mirror.status("t")
    assert (found.state, found.is_unhealthy) == ("DAMAGED", True)
    assert message in (found.damage or "")
    (fault,) = [each for each in doctor(catalog).checks if each.name == "log files"]
    assert fault.status == "failure"
    assert message in fault.detail
    assert "mirror repair" in (fault.suggestion or "")
    (report,) = catalog.mirror.verify("t", with_deltalake=False)
    assert not report.ok
    planned = catalog.mirror.repair("t", dry_run=True)
    mended = catalog.mirror.repair("t")
    assert mended.ok, mended.summary()
    assert planned.replaced == mended.replaced
    (after,) = catalog.mirror.status("t")
    assert (after.state, after.is_unhealthy, after.damage) == ("ACTIVE", False, None)
    assert doctor(catalog).ok
    rows = deltalake.DeltaTable(table.location).to_pyarrow_table().num_rows
    with catalog.begin() as tx:
        assert rows == tx.read("t").num_rows


@pytest.mark.parametrize("damage", COMMITS)
@pytest.mark.parametrize("version", [2, HEAD])
def test_damaged_commit_is_found_and_repaired(
    published: Catalog, damage: str, version: int
) -> None:
    path = commit_path(published.table("t").location, version)
    whole = path.read_bytes()
    path.write_bytes(COMMITS[damage](whole))
    check_found_and_repaired(published, f"version {version} is ")
    assert path.read_bytes() == whole


def test_missing_commit_is_found_and_repaired(published: Catalog) -> None:
    commit_path(published.table("t").location, HEAD).unlink()
    check_found_and_repaired(published, f"version {HEAD} is missing")


def test_many_empty_commits_are_all_found_and_repaired(published: Catalog) -> None:
    place = published.table("t").location
    for version in range(1, HEAD + 1):
        commit_path(place, version).write_bytes(b"")
    (found,) = published.mirror.status("t")
    assert (found.damage or "").endswith(f", and {HEAD - 1} more")
    report = published.mirror.repair("t")
    assert report.ok, report.summary()
    assert report.replaced == list(range(1, HEAD + 1))
    assert report.backups == []


def test_empty_commit_after_the_head_is_removed(published: Catalog) -> None:
    """SQL does not have the commit either, so nothing is lost with the empty file."""
    path = commit_path(published.table("t").location, HEAD + 1)
    path.write_bytes(b"")
    check_found_and_repaired(published, f"version {HEAD + 1} is empty")
    assert not path.exists()
    assert append(published, 9) == HEAD + 1


def test_imported_empty_commit_is_not_damage(
    sqlite_uri: DeltaSqlUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The age of the commit does not matter. An empty file of any other commit is damage."""
    monkeypatch.setattr(quick_check, "NEWEST_COMMITS", 2)
    made = HandwrittenTable(tmp_path / "t")
    made.commit(PROTOCOL, metadata(column("id")))
    made.commit()
    made.commit({"commitInfo": {"operation": "WRITE"}})
    (made.log / f"{1:020d}.json").write_bytes(b"")
    with open_mirrored(sqlite_uri, tmp_path / "lake") as catalog:
        catalog.import_table(made.path, name="t")
        catalog.cutover("t")
        for number in range(3):
            with catalog.begin() as tx:
                tx.write("t", pa.table({"id": [number]}))
        (found,) = catalog.mirror.status("t")
        assert (found.state, found.damage) == ("ACTIVE", None)
        assert [each.detail for each in doctor(catalog).checks if each.status == "failure"] == []
        (made.log / f"{2:020d}.json").write_bytes(b"")
        (found,) = catalog.mirror.status("t")
        assert (found.state, found.damage) == ("DAMAGED", "version 2 is empty")


@pytest.mark.parametrize("size", [0, 4, -100])
def test_truncated_checkpoint_is_found_and_repaired(published: Catalog, size: int) -> None:
    log = Path(published.table("t").location) / LOG
    path = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
    path.write_bytes(path.read_bytes()[:size])
    check_found_and_repaired(published, f"the checkpoint of version {CHECKPOINT} is truncated")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version":true,"size":1}',
        '{"version":-1,"size":1}',
        '{"version":99999999999999999999999,"size":1}',
        '{"version":4096,"size":1}',
        f'{{"version":{CHECKPOINT},"size":-5}}',
        f'{{"version":{CHECKPOINT},"size":1,"parts":3}}',
    ],
)
@pytest.mark.parametrize("has_checkpoint", [True, False], ids=["checkpoint", "none"])
def test_invalid_checkpoint_hint_is_found_and_repaired(
    published: Catalog, text: str, has_checkpoint: bool
) -> None:
    log = Path(published.table("t").location) / LOG
    if not has_checkpoint:
        (log / f"{CHECKPOINT:020d}.checkpoint.parquet").unlink()
    (log / "_last_checkpoint").write_text(text)
    check_found_and_repaired(published, "_last_checkpoint")
    assert (log / "_last_checkpoint").exists() == has_checkpoint


def test_next_checkpoint_replaces_a_hint_to_a_missing_checkpoint(published: Catalog) -> None:
    table = published.table("t")
    (Path(table.location) / LOG / "_last_checkpoint").write_text('{"version":4096,"size":1}')
    published.mirror.checkpoint("t")
    (found,) = published.mirror.status("t")
    assert found.damage is None
    assert storage_of(table).exists(f"_delta_log/{HEAD:020d}.checkpoint.parquet")


def test_status_can_skip_the_log_files(published: Catalog) -> None:
    commit_path(published.table("t").location, HEAD).write_bytes(b"")
    (found,) = published.mirror.status("t", files=False)
    assert (found.state, found.damage) == ("ACTIVE", None)


def test_repair_report_recommends_force_if_force_is_needed(published: Catalog) -> None:
    place = published.table("t").location
    path = commit_path(place, 7)
    path.write_bytes(path.read_bytes().replace(b'"WRITE"', b'"MERGE"'))
    report = published.mirror.repair("t")
    message = report.summary()
    assert report.needs_force
    assert "nothing to repair" not in message
    assert "nothing was repaired" in message
    assert "--force" in message
    assert report.to_dict()["needs_force"] is True
    forced = published.mirror.repair("t", force=True)
    assert forced.ok, forced.summary()
    assert "--force" not in forced.summary()


def test_repair_names_force_for_more_differences_than_a_report_lists(published: Catalog) -> None:
    place = published.table("t").location
    last = HEAD + Differences().keep
    for number in range(HEAD + 1, last + 1):
        with published.begin() as tx:
            tx.stage_table("t", [deltasql.SetTransaction("etl", number)])
    for version in range(1, last + 1):
        path = commit_path(place, version)
        path.write_bytes(path.read_bytes().replace(b'"etl"', b'"lte"'))
    for report in (published.mirror.repair("t", dry_run=True), published.mirror.repair("t")):
        assert report.needs_force
        message = report.summary()
        assert "nothing to repair" not in message
        assert "--force" in message
    forced = published.mirror.repair("t", force=True)
    assert forced.ok, forced.summary()
    assert len(forced.replaced) == last
