"""After a power loss, no named file is empty or truncated, and published versions exist.

A process runs everything that writes files of a lake while a preloaded library records its file
system calls, from Python, Arrow or any other code. The worst states that POSIX allows at each point
in time follow from these calls. deltasql writes no multi-part and no V2 checkpoints (and thus no
sidecars), so they are not among the kinds of files.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import deltalake
import pyarrow as pa
import pytest

from tests.power.disk import Call, Disk, compile_recorder, is_temporary, read_calls

ROOT = Path(__file__).parents[2]
COMMITS_OF_SPARK = 4
COMMIT = re.compile(r"(?P<place>.*)/_delta_log/(?P<version>\d{20})\.json")
CHECKPOINT = re.compile(r"(?P<place>.*)/_delta_log/(?P<version>\d{20})\.checkpoint\.parquet")
# Every kind of file that deltasql writes to a lake, by its name.
KINDS = {
    "commit": r"_delta_log/\d{20}\.json",
    "checksum": r"_delta_log/\d{20}\.crc",
    "checkpoint": r"_delta_log/\d{20}\.checkpoint\.parquet",
    "last checkpoint": r"_delta_log/_last_checkpoint",
    "compacted log": r"_delta_log/\d{20}\.\d{20}\.compacted\.json",
    "moved out of the log": r"_delta_log/_aside/\w+/.*\.aside",
    "record of the catalog that owns the log": r"_delta_log/_deltasql\w*\.json",
    "manifest": r"_symlink_format_manifest/.*manifest",
    "change data": r"_change_data/.*\.parquet",
    "data": r"(?:day=\w+/)?part-[^/]*\.parquet",
    "deletion vector": r"t/deletion_vector_[^/]*\.bin",
    "copied deletion vector": r"ab/deletion_vector_[^/]*\.bin",
    "export under way": r"_deltasql_export\.json",
    "views": r"views/all\.duckdb",
}


@dataclass
class Recorded:
    """The recorded calls of one run of the workload."""

    folder: Path
    calls: list[Call]

    @property
    def lake(self) -> str:
        return str(self.folder / "lake")

    def disk(self) -> Disk:
        return Disk(self.lake, self.folder / "vault")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record("tests.power.workload", tmp_path_factory.mktemp("power"))


def record(module: str, folder: Path) -> Recorded:
    """Run a module and record the calls of it and its children below a folder."""
    if not sys.platform.startswith("linux"):
        pytest.skip("calls are recorded by LD_PRELOAD, which is Linux's")
    if shutil.which(os.environ.get("CC", "cc")) is None:
        pytest.skip("no C compiler: the recording library cannot be built")
    library = compile_recorder(folder)
    (folder / "vault").mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(library),
        "RECORDER_LOG": str(folder / "calls"),
        "RECORDER_ROOT": f"{folder}/lake",
        "RECORDER_VAULT": str(folder / "vault"),
    }
    command = [sys.executable, "-m", module, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Recorded(folder, read_calls(folder / "calls"))


def test_named_file_is_never_empty_or_truncated(recorded: Recorded) -> None:
    disk, others, by_others = recorded.disk(), set[int](), False
    wrong: dict[str, None] = {}
    for call in recorded.calls:
        disk.apply(call)
        if call.name == "mark" and call.path.startswith("others"):
            by_others = call.path.startswith("others begin")
        elif by_others:
            others.add(call.inode)
        elif call.name in ("link", "rename", "create", "truncate", "write"):
            named = [path for path, inode in disk.kept().items() if inode == call.inode]
            unsafe = call.inode in disk.unflushed and call.inode not in others
            wrong |= {path: None for path in named if unsafe and not is_temporary(path)}
    assert not wrong, "\n".join(wrong)


def test_recording_contains_every_kind_of_file(recorded: Recorded) -> None:
    disk = recorded.disk()
    seen: dict[str, str] = {}
    for call in recorded.calls:
        disk.apply(call)
        if call.name in ("link", "rename", "create") and not is_temporary(call.path):
            kinds = [kind for kind, name in KINDS.items() if re.search(f"{name}$", call.path)]
            for kind in kinds or ["unknown"]:
                seen.setdefault(kind, call.path)
    assert "unknown" not in seen, seen["unknown"]
    assert set(seen) == set(KINDS)


def test_published_versions_survive_a_power_loss(recorded: Recorded) -> None:
    disk, marks = recorded.disk(), 0
    for call in recorded.calls:
        disk.apply(call)
        kind, place, version = call.path.split("|") if call.name == "mark" else ("", "", "")
        if kind == "published":
            marks += 1
            commits = {
                int(found["version"]): path
                for path in disk.names
                if (found := COMMIT.fullmatch(path)) and found["place"] == place
            }
            assert int(version) in commits, f"{place} lacks version {version}"
            lost = [
                path
                for each, path in commits.items()
                if each <= int(version) and not disk.is_safe(path)
            ]
            assert not lost, f"published up to {version}, and may be lost: {lost}"
            named = [
                f"{place}/{name}"
                for each, path in commits.items()
                if each <= int(version)
                for name in _files(recorded, disk.names[path])
            ]
            lost = [path for path in named if path in disk.names and not disk.is_safe(path)]
            assert not lost, f"published up to {version}, and may be lost: {lost}"
        if kind == "ratified":
            names = ("/part-", "/deletion_vector_")
            data = [path for path in disk.names if any(name in path for name in names)]
            lost = [path for path in data if not disk.is_safe(path) and not is_temporary(path)]
            ours = [path for path in lost if "/adopted/" not in path]
            assert not ours, f"named in SQL, and may be lost: {ours}"
    assert marks > 50


def _files(recorded: Recorded, inode: int) -> list[str]:
    """Return the files that a commit adds, by their relative paths."""
    lines = (recorded.folder / "vault" / str(inode)).read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    added = [each[kind]["path"] for each in actions for kind in ("add", "cdc") if kind in each]
    return [unquote(path) for path in added if "://" not in path]


def test_commit_file_is_deleted_only_after_its_checkpoint_is_durable(recorded: Recorded) -> None:
    disk, deleted, by_others = recorded.disk(), 0, False
    for call in recorded.calls:
        if call.name == "mark" and call.path.startswith("others"):
            by_others = call.path.startswith("others begin")
        gone = COMMIT.fullmatch(call.path) if call.name == "unlink" else None
        if gone and not by_others:
            deleted += 1
            assert any(
                found["place"] == gone["place"]
                and found["version"] >= gone["version"]
                and disk.is_safe(path)
                for path in disk.names
                if (found := CHECKPOINT.fullmatch(path))
            ), call.path
        disk.apply(call)
    assert deleted


def test_deltalake_reads_the_worst_states_after_a_power_loss(
    recorded: Recorded, tmp_path: Path
) -> None:
    """It reads the states at the last publish of each location with the fewest and most names."""
    last = {
        call.path.split("|")[1]: number
        for number, call in enumerate(recorded.calls)
        if call.name == "mark" and call.path.startswith("published|")
    }
    disk, read = recorded.disk(), 0
    for number, call in enumerate(recorded.calls):
        disk.apply(call)
        if call.name != "mark" or number not in last.values():
            continue
        _, place, version = call.path.split("|")
        below = os.path.relpath(place, recorded.lake)
        for kind, files in (("lost", disk.lost()), ("kept", disk.kept())):
            state = tmp_path / f"{number} {kind}"
            ours = {path: i for path, i in files.items() if path.startswith(f"{place}/")}
            disk.build(ours, state)
            found = deltalake.DeltaTable(str(state / below))
            assert found.version() >= int(version), (place, kind)
            if "/exports/log" not in place:  # it references files of another location
                real = deltalake.DeltaTable(place, version=found.version())
                rows, wanted = (pa.table(each.scan()).num_rows for each in (found, real))
                assert rows == wanted, (place, kind)
            read += 1
    assert read >= 20


@pytest.mark.everything("starts a JVM of its own, whose calls are recorded")
def test_files_of_spark_executors_are_durable_before_the_commit(tmp_path: Path) -> None:
    """Spark does not flush; the driver flushes its files before the commit."""
    found = record("tests.power.spark_workload", tmp_path)
    disk, commits, jvm = found.disk(), 0, set[int]()
    for call in found.calls:
        disk.apply(call)
        if call.name == "write" and "/_temporary/" in call.path:
            jvm.add(call.inode)
        if call.name == "mark" and call.path.startswith("ratified"):
            commits += 1
            data = [path for path in disk.names if path.endswith(".parquet")]
            lost = [path for path in data if not disk.is_safe(path)]
            assert not lost, f"named in SQL, and may be lost: {lost}"
    assert commits >= COMMITS_OF_SPARK
    by_spark = [path for path, inode in disk.names.items() if inode in jvm]
    assert any("_change_data/" in path for path in by_spark)
    assert len(by_spark) >= 6
