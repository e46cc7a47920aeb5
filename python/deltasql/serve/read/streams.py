"""Requests of a stream that reads a table: its offsets, and the files of a batch.

A request contains the options of the stream and the version that defines its columns, so that a
service that was started again can handle the next one.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from deltasql.api.stream.options import READING, STREAMING, TextOptions
from deltasql.api.stream.planner import MAX_FILES, Budget, StreamPlanner
from deltasql.api.stream.rules import Offset, StreamRules
from deltasql.exceptions import TxnLogConfigError
from deltasql.serve.names import snapshot_of, table_name
from deltasql.serve.read.changed_files import added_files, feed_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deltasql.api.catalog.catalog import Catalog


def start(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the offset at which a new stream starts."""
    return {"offset": asdict(_planner(catalog, body).initial_offset())}


def latest(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the latest version, and the offset after it."""
    after = _planner(catalog, body).after_head()
    return {"version": after.version - 1, "offset": asdict(after)}


def following(catalog: Catalog, body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the end of the batch that begins at an offset; the same offset if it has no rows."""
    options = _options(body)
    if body.get("all_available"):
        budget = Budget(None, None)
    else:
        most = options.number("maxFilesPerTrigger") or MAX_FILES
        budget = Budget(most, options.number("maxBytesPerTrigger"))
    planner = _planner(catalog, body)
    found = planner.next_offset(_offset(body, "start"), budget, body.get("last_version"))
    return {"offset": asdict(found)}


def files(catalog: Catalog, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the files of a batch."""
    planner = _planner(catalog, body)
    versions = planner.batch(_offset(body, "start"), _offset(body, "end"))
    selected = feed_files if body.get("changes") else added_files
    return selected(catalog, snapshot_of(catalog, body), versions)


def _planner(catalog: Catalog, body: Mapping[str, Any]) -> StreamPlanner:
    snapshot = snapshot_of(catalog, body)
    return StreamPlanner(
        catalog,
        table_name(body),
        StreamRules.of(_options(body)),
        schema=snapshot.schema,
        version=snapshot.version,
    )


def _offset(body: Mapping[str, Any], key: str) -> Offset:
    try:
        return Offset(**body[key])
    except TypeError as error:
        raise TxnLogConfigError(
            f"the checkpoint does not belong to a stream of {table_name(body)}: its offset is "
            f"{body[key]!r}",
            key="checkpointLocation",
            help="Use a new checkpoint.",
        ) from error


def _options(body: Mapping[str, Any]) -> TextOptions:
    """Return the options of the stream, and raise if one cannot be used with a table's name."""
    name = table_name(body)
    given = {str(key): str(value) for key, value in (body.get("options") or {}).items()}
    owner = f"the stream of {name}"
    TextOptions(given, owner).check_names((*READING, *STREAMING))
    if body.get("changes"):
        given["readChangeFeed"] = "true"
    options = TextOptions({key.lower(): value for key, value in given.items()}, owner)
    if options.flag("readChangeFeed") and not body.get("changes"):
        raise TxnLogConfigError(
            f"readStream.table({name!r}) cannot read the change feed, because an option cannot add "
            "columns to a table",
            key="readChangeFeed",
            help="Use readStream.changes on Spark 4.2 or newer, or readStream.format('deltasql') "
            "with readChangeFeed.",
        )
    return options
