"""Symlink manifests: lists of data files for engines that read Parquet but not Delta."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from deltasql.engine.parquet.writer import partition_folder
from deltasql.exceptions import UnsupportedFeatureError
from deltasql.model.schema.schema import column_mapping_mode
from deltasql.storage.location import data_address

if TYPE_CHECKING:
    from deltasql.snapshot.snapshot import Snapshot
    from deltasql.storage import Storage

_FOLDER = "_symlink_format_manifest/"


def write_manifests(snapshot: Snapshot, storage: Storage) -> list[str]:
    """Write one manifest per partition, and return the names of the manifests.

    Manifests of partitions that the table does not have any more are deleted.

    Raises an error for tables with deletion vectors or column mapping. Engines read the listed
    files as they are, so deleted rows would reappear and columns would have their physical names.
    """
    files = snapshot.scan().arrow
    if any(files["deletion_vector"].to_pylist()):
        raise _unsupported(
            snapshot,
            "deletionVectors",
            "Run REORG TABLE … APPLY (PURGE): it rewrites the files with deletion vectors.",
        )
    if column_mapping_mode(snapshot.metadata.configuration):
        raise _unsupported(
            snapshot, "columnMapping", "Read the table with an engine that supports Delta."
        )
    listed: dict[str, list[str]] = defaultdict(list)
    for path, partition in zip(
        files["path"].to_pylist(), files["partition"].to_pylist(), strict=True
    ):
        folder = partition_folder(json.loads(partition)) if partition else ""
        listed[folder].append(data_address(snapshot.table.location, path))
    names = {f"{_FOLDER}{folder}manifest": paths for folder, paths in listed.items()}
    if not snapshot.partition_columns:
        names.setdefault(f"{_FOLDER}manifest", [])
    for name, paths in names.items():
        storage.put(name, "".join(f"{path}\n" for path in paths).encode())
    storage.delete_many([old.name for old in storage.list(_FOLDER) if old.name not in names])
    return list(names)


def _unsupported(snapshot: Snapshot, feature: str, help_text: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"cannot write manifests of {snapshot.table.full_name}: it uses {feature}",
        features=(feature,),
        help=help_text,
    )
