"""Compare the files and actions of a table in the database with those of its log, by field."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.mirror.log.file_tables import logical_files
from deltasql.verify.report import Difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deltasql.model.actions import Action
    from deltasql.verify.report import Differences


def compare_files(
    sql: pa.Table,
    log: pa.Table,
    found: Differences,
    *,
    version: int,
    source: str,
    fields: Sequence[str],
) -> None:
    """Match files by path and deletion vector, then compare them field by field."""
    sql_names, log_names = logical_files(sql), logical_files(log)
    places = pc.index_in(sql_names, log_names.combine_chunks())
    unknown = pc.invert(pc.is_in(log_names, sql_names.combine_chunks()))
    _add_paths("missing-file", sql.filter(pc.is_null(places)), found, version, source)
    _add_paths("extra-file", log.filter(unknown), found, version, source)
    if pc.count_distinct(log_names).as_py() < log.num_rows:
        found.add(Difference("file-twice", version, source=source))
    ours = sql.filter(pc.is_valid(places))
    theirs = log.take(pc.drop_null(places))
    for name in fields:
        _compare_column(ours, theirs, name, found, version, source)


def _add_paths(kind: str, files: pa.Table, found: Differences, version: int, source: str) -> None:
    shown = files["path"].slice(0, found.keep).to_pylist()
    differences = (Difference(kind, version, path, source=source) for path in shown)
    found.add_samples(differences, files.num_rows)


def _compare_column(
    ours: pa.Table, theirs: pa.Table, name: str, found: Differences, version: int, source: str
) -> None:
    left, right = ours[name], theirs[name]
    one_is_null = pc.xor(pc.is_null(left), pc.is_null(right))
    differs = pc.or_(pc.fill_null(pc.not_equal(left, right), False), one_is_null)
    if not pc.any(differs).as_py():
        return
    rows = zip(
        ours["path"].filter(differs).to_pylist(),
        left.filter(differs).to_pylist(),
        right.filter(differs).to_pylist(),
        strict=True,
    )
    for path, sql, log in rows:
        if not _is_equivalent(name, sql, log):
            found.add(Difference("file", version, path, name, sql, log, source))


def _is_equivalent(name: str, sql: Any, log: Any) -> bool:
    """Return whether two different values have the same meaning."""
    if name == "tags":  # some writers write an empty map for no tags
        return same_json(sql or "{}", log or "{}")
    if name == "stats":
        return same_stats(sql, log)
    if name == "num_records":  # deltalake may not have parsed it from the statistics
        return log is None
    if name == "extra":  # a checkpoint has no columns for unknown fields
        return _agree(json.loads(sql or "{}"), json.loads(log or "{}"))
    return name == "deletion_vector" and same_json(sql, log)


def same_stats(left: str | None, right: str | None) -> bool:
    """Return whether two JSON strings of statistics are compatible.

    A checkpoint may leave out statistics, or store them in typed columns with less precision and
    without some values. Values that are in both strings must be equal.

    >>> same_stats('{"numRecords":2,"minValues":{"x":0.1}}', '{"numRecords":2}')
    True
    >>> same_stats('{"numRecords":2}', '{"numRecords":3}')
    False
    """
    if left is None or right is None:
        return True
    try:
        return _agree(json.loads(left), json.loads(right))
    except (ValueError, RecursionError):
        return False


def _agree(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return all(_agree(left[key], right[key]) for key in left.keys() & right.keys())
    if left is None or right is None or left == right:
        return True
    if isinstance(left, bool) or isinstance(right, bool):
        return False
    if isinstance(left, int | float) and isinstance(right, int | float):
        return not (isinstance(left, int) and isinstance(right, int)) and _same_float(left, right)
    return _timestamp(left) is not None and _timestamp(left) == _timestamp(right)


def _same_float(left: float, right: float) -> bool:
    """Return whether two numbers are equal as 32-bit floats."""
    try:
        return bool(struct.pack("f", left) == struct.pack("f", right))
    except OverflowError:
        return False


def _timestamp(value: Any) -> datetime | None:
    """Parse a timestamp in milliseconds, the precision of statistics; None for other strings."""
    try:
        timestamp = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    aware = timestamp if timestamp.tzinfo else timestamp.replace(tzinfo=UTC)
    return aware.replace(microsecond=aware.microsecond // 1000 * 1000)


def compare_action(
    kind: str,
    sql: Action | None,
    log: Action | None,
    found: Differences,
    *,
    version: int,
    source: str,
    path: str | None = None,
) -> None:
    """Compare two actions of one kind field by field; missing and empty values are equal."""
    left = {} if sql is None else sql.body()
    right = {} if log is None else log.body()
    compare_mappings(kind, left, right, found, version=version, source=source, path=path)


def compare_mappings(
    kind: str,
    sql: Mapping[str, Any],
    log: Mapping[str, Any],
    found: Differences,
    *,
    version: int,
    source: str,
    path: str | None = None,
) -> None:
    """Compare two mappings by key; missing and empty values are equal."""
    for name in sorted({*sql, *log}):
        left, right = sql.get(name), log.get(name)
        if left == right or (not left and not right and left != 0 and right != 0):
            continue
        if name == "schemaString" and same_json(left, right):
            continue
        if _unordered(name, left) == _unordered(name, right):
            continue
        found.add(Difference(kind, version, path, name, left, right, source))


def _unordered(name: str, value: Any) -> Any:
    """Return a value of an action with its lists of table features sorted."""
    if name == "protocol" and isinstance(value, dict):
        return {key: _unordered(key, each) for key, each in value.items()}
    if name in ("readerFeatures", "writerFeatures") and isinstance(value, list | tuple):
        return sorted(map(str, value))
    return value


def same_json(left: str | None, right: str | None) -> bool:
    """Return whether two JSON strings have the same value.

    >>> same_json('{"a": 1, "b": 2}', '{"b":2,"a":1}'), same_json("{", None)
    (True, False)
    """
    if left is None or right is None:
        return left == right
    try:
        return bool(json.loads(left) == json.loads(right))
    except ValueError:
        return False
