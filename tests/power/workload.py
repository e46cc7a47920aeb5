"""Everything that writes files of a lake, in a process whose file system calls are recorded.

`python -m tests.power.workload FOLDER` works below FOLDER/lake, with its databases in FOLDER. Marks
among the recorded calls state what was guaranteed at that point.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import deltasql
from deltasql.migrate import rebuild as rebuilding
from deltasql.mirror.publish import status
from deltasql.mirror.publish.targets import DELTA, PublishTarget
from deltasql.phases import hooked
from deltasql.storage import local_files
from tests.migrate.handwritten import VECTORS, HandwrittenTable, column, metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog

ROW = pa.table({"id": [1], "day": ["a"]})
VERSIONS = 7


def mark(kind: str, place: str = "", version: int = 0) -> None:
    """Record a mark; the file does not exist."""
    with suppress(FileNotFoundError):
        os.open(f"/recorder-mark/{kind}|{place}|{version}", os.O_RDONLY)


def mark_published(recorded: str) -> None:
    """Mark a version in the recorded folder before SQL records that it is published."""
    advance, publish = status.record_published, status.mark_published

    def mark_version(place: str, version: int) -> None:
        if place.startswith(recorded):
            mark("published", place, version)

    def record_with_mark(store: Any, table_id: int, target: str, **versions: int) -> int | None:
        for row in store.query("targets_of", table_id=table_id):
            found = PublishTarget.from_row(row)
            if found.name == target and found.kind == DELTA:
                mark_version(found.location, versions["last"])
        return advance(store, table_id, target, **versions)

    def publish_with_mark(store: Any, table: Any, version: int, *more: Any) -> None:
        mark_version(table.location, version)
        publish(store, table, version, *more)

    status.record_published = record_with_mark
    status.mark_published = rebuilding.mark_published = publish_with_mark


def mark_ratified(phase: str) -> None:
    """Mark the point at which SQL references data files."""
    if phase == "ratified":
        mark("ratified")


@contextmanager
def by_others() -> Iterator[None]:
    """Mark the changes of another program, which flushes nothing."""
    mark("others begin")
    yield
    mark("others end")


class Lake:
    """A folder with a separate catalog for each kind of work."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "lake"

    def open(self, name: str, **mirror: Any) -> Catalog:
        return deltasql.connect(
            f"deltasql://sqlite/{self.folder}/{name}.db",
            mirror={"mode": "sync", "checkpoint_interval": 3, **mirror},
            table={"data_root": str(self.root / name)},
        )

    def filled(self, name: str, **mirror: Any) -> Catalog:
        """Return a catalog with a partitioned table: version n has n rows."""
        catalog = self.open(name, **mirror)
        catalog.create_table("t", ROW.schema, partition_by=["day"])
        for number in range(1, VERSIONS):
            append(catalog, number)
        return catalog


def append(catalog: Catalog, number: int) -> None:
    with catalog.begin() as tx:
        tx.write("t", pa.table({"id": [number], "day": [f"d{number % 2}"]}))


def log(catalog: Catalog) -> Path:
    return Path(catalog.table("t").location) / "_delta_log"


def write_synchronously(lake: Lake) -> None:
    with lake.filled("sync") as catalog:
        catalog.mirror.compact_log("t", 1, 3)
        catalog.mirror.write_manifests(catalog.table("t").snapshot())
    with lake.open("sync") as catalog:  # a new process does not know what is published
        append(catalog, VERSIONS)


def in_the_background(lake: Lake) -> None:
    with lake.filled("async", mode="async") as catalog:
        assert catalog.mirror.flush()


def by_reconciler(lake: Lake) -> None:
    with lake.filled("reconciled", mode="off") as catalog:
        catalog.mirror.run(once=True)


def on_a_disk_without_unnamed_files(lake: Lake) -> None:
    unnamed, local_files._UNNAMED = local_files._UNNAMED, 0
    try:
        lake.filled("hidden").close()
    finally:
        local_files._UNNAMED = unnamed


def to_targets(lake: Lake) -> None:
    with lake.filled("targets") as catalog:
        catalog.mirror.add_target("t", "copy", str(lake.root / "replica" / "t"))
        deltasql.mirror_duckdb(catalog, lake.root / "views" / "all.duckdb")
        catalog.mirror.publish("t")
        append(catalog, VERSIONS)


def with_change_data(lake: Lake) -> None:
    with lake.open("changes") as catalog:
        on = {"delta.enableChangeDataFeed": "true"}
        catalog.create_table("t", ROW.schema, properties=on)
        with catalog.begin() as tx:
            tx.write("t", pa.table({"id": [1, 2], "day": ["a", "a"]}))
        with catalog.begin() as tx:
            tx.delete("t", "id = 1")


def with_deletion_vectors(lake: Lake) -> None:
    with lake.open("vectors") as catalog:
        rows = pa.table({"id": range(1000), "day": ["a"] * 1000})
        with catalog.begin() as tx:
            tx.write("t", rows, properties={"delta.enableDeletionVectors": "true"})
        with catalog.begin() as tx:
            assert tx.delete("t", "id % 3 = 0")["num_deletion_vectors_added"] == 1


def repaired(lake: Lake) -> None:
    with lake.filled("repaired") as catalog:
        place = log(catalog)
        with by_others():
            (place / f"{2:020d}.json").unlink()
            (place / f"{6:020d}.json").write_bytes(b"")
            (place / f"{3:020d}.checkpoint.parquet").write_bytes(b"PAR1")
            (place / "_last_checkpoint").write_bytes(b"{}")
            (place / f"{5:020d}.crc").unlink()
        assert catalog.mirror.repair("t").ok
        mark("published", str(place.parent), VERSIONS - 1)
        damaged = (place / f"{1:020d}.json").read_bytes().replace(b"WRITE", b"MERGE")
        with by_others():
            (place / f"{1:020d}.json").write_bytes(damaged)
        assert catalog.mirror.repair("t", force=True).ok
        mark("published", str(place.parent), VERSIONS - 1)


def rebuilt(lake: Lake) -> None:
    lake.filled("rebuilt").close()
    report = deltasql.rebuild(
        f"deltasql://sqlite/{lake.folder}/again.db", str(lake.root / "rebuilt")
    )
    assert report.ok, report.summary()


def exported(lake: Lake) -> None:
    with lake.filled("exported") as catalog:
        for name, options in {
            "whole": {"with_data": True},
            "log": {},
            "late": {"with_data": True, "from_version": 4},
        }.items():
            place = lake.root / "exports" / name
            catalog.export_table("t", str(place), **options)
            mark("published", str(place), VERSIONS - 1)


def exported_with_deletion_vectors(lake: Lake) -> None:
    made = HandwrittenTable(lake.folder / "foreign")
    vector = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1}
    vector |= {"sizeInBytes": 40, "cardinality": 1}
    add = made.add("part-1.parquet", ROW.select(["id"]), deletionVector=vector)
    made.commit(VECTORS, metadata(column("id")), add)
    name = made.folder / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    name.parent.mkdir()
    name.write_bytes(bytes(64))
    with lake.open("foreign_vectors") as catalog:
        catalog.import_table(made.path, name="t")
        catalog.export_table("t", str(lake.root / "exports" / "vectors"), with_data=True)


def cleaned(lake: Lake) -> None:
    with lake.filled("cleaned") as catalog:
        with catalog.begin() as tx:
            tx.set_table_properties("t", {"delta.logRetentionDuration": "interval 0 seconds"})
        assert catalog.mirror.clean_log("t")
        append(catalog, VERSIONS)


def commit_by_path(place: Path, version: int) -> None:
    """Write a commit file as another program would, without SQL and without a flush."""
    before = (place / f"{version - 1:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in before]
    (info,) = [each["commitInfo"] for each in actions if "commitInfo" in each]
    (add,) = [each["add"] for each in actions if "add" in each]
    path = f"{add['path']}-{version}.parquet"
    with by_others():
        (place.parent / path).write_bytes((place.parent / add["path"]).read_bytes())
    info.pop("txnId", None)
    changed_info = {**info, "engineInfo": "another", "inCommitTimestamp": info["timestamp"] + 1}
    lines = [{"commitInfo": changed_info}, {"add": {**add, "path": path}}]
    text = "\n".join(json.dumps(each) for each in lines)
    with by_others():
        (place / f"{version:020d}.json").write_text(text)


def adopted(lake: Lake) -> None:
    with lake.filled("adopted") as catalog:
        commit_by_path(log(catalog), VERSIONS)
        assert catalog.mirror.adopt("t").adopted
        commit_by_path(log(catalog), VERSIONS + 1)
        assert catalog.mirror.reject("t").rejected
        append(catalog, VERSIONS)


def rolled_back(lake: Lake) -> None:
    with lake.filled("left") as catalog:
        place = str(log(catalog).parent)
        report = catalog.rollback("t")
        mark("published", place, report.version)


WORK: tuple[Callable[[Lake], None], ...] = (
    write_synchronously,
    in_the_background,
    by_reconciler,
    on_a_disk_without_unnamed_files,
    to_targets,
    with_change_data,
    with_deletion_vectors,
    repaired,
    rebuilt,
    exported,
    exported_with_deletion_vectors,
    cleaned,
    adopted,
    rolled_back,
)


def main(folder: Path) -> None:
    lake = Lake(folder)
    mark_published(str(lake.root))
    lake.root.mkdir()
    with hooked(mark_ratified):
        for work in WORK:
            mark(f"work {work.__name__}")
            work(lake)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
