"""Helpers for tests of the mirror: a catalog that publishes, and access to a published log."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltasql
from deltasql.mirror.publish.targets import OWN

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store
    from deltasql.uri import DeltaSqlUri

LOG = "_delta_log"


def open_mirrored(uri: DeltaSqlUri | str, folder: Path | str, **settings: Any) -> Catalog:
    """Open a catalog that publishes before a commit returns, with its data root in a folder."""
    defaults = {"mirror": {"mode": "sync"}, "table": {"data_root": str(folder)}}
    return deltasql.connect(uri, create=True, **{**defaults, **settings})


def forget_published(store: Store, table: TableRow, *, from_version: int) -> None:
    """Record this version and later ones as not published, as if the publisher was killed."""
    key: dict[str, Any] = {"table_id": table.table_id, "target": OWN}
    with store.change() as (session, _):
        session.execute("set_published_version", **key, version=from_version - 1)
        session.execute("delete_mirror_statuses", **key, first=from_version)


def log_names(location: Path | str) -> list[str]:
    """Return the sorted file names in a table's `_delta_log`, also of files that readers ignore."""
    return sorted(path.name for path in (Path(location) / LOG).iterdir())


def log_bytes(location: Path | str) -> dict[str, bytes]:
    """Return the content of every file in a table's `_delta_log`."""
    return {name: (Path(location) / LOG / name).read_bytes() for name in log_names(location)}


def commit_path(location: Path | str, version: int) -> Path:
    """Return the path of a version's commit file."""
    return Path(location) / LOG / f"{version:020d}.json"


def commit_lines(location: Path | str, version: int) -> list[dict[str, Any]]:
    """Return the actions of a published commit."""
    return [json.loads(line) for line in commit_path(location, version).read_bytes().splitlines()]


def published_versions(location: Path | str) -> list[int]:
    """Return the versions that have a commit file."""
    names = (Path(name) for name in log_names(location))
    return sorted(int(n.stem) for n in names if n.suffix == ".json" and n.stem.isdigit())


def checkpoint_versions(location: Path | str) -> list[int]:
    """Return the versions that have a checkpoint."""
    found = (name for name in log_names(location) if ".checkpoint." in name)
    return sorted({int(name.partition(".")[0]) for name in found})


def copy_table(location: Path | str, target: Path) -> Path:
    """Copy a table so that a test can damage the log of the copy; data files are hard links."""
    source = Path(location)
    shutil.copytree(source, target, copy_function=_link, ignore=shutil.ignore_patterns(LOG))
    shutil.copytree(source / LOG, target / LOG)
    return target


def forget_checkpoints(location: Path) -> None:
    """Leave only the commit files, so that a reader must replay all of them."""
    for name in log_names(location):
        if not commit_name(name):
            (location / LOG / name).unlink()


def forget_commits_below(location: Path, version: int) -> None:
    """Delete the commit files that a checkpoint of this version replaces."""
    for each in published_versions(location):
        if each < version:
            commit_path(location, each).unlink()


def forget_checksums(location: Path) -> None:
    """Delete the version checksums."""
    for name in log_names(location):
        if name.endswith(".crc"):
            (location / LOG / name).unlink()


def commit_name(name: str) -> bool:
    """Return whether a name in `_delta_log` is that of a commit file.

    >>> commit_name("00000000000000000003.json"), commit_name("00000000000000000003.crc")
    (True, False)
    """
    stem, _, suffix = name.partition(".")
    return suffix == "json" and len(stem) == 20 and stem.isdigit()


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
