"""Where two descriptions of a table differ: file by file, field by field, a bounded number kept."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from deltasql.mirror.log.file_tables import logical_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltasql.model.actions import Action

# Two writers may spell the same JSON differently.
_JSON_FIELDS = frozenset({"stats", "tags", "deletion_vector", "extra"})


@dataclass(frozen=True, slots=True)
class Difference:
    """One fact that SQL and the published log tell differently.

    `source` says who read the log: `json` (the commit file itself), `replay` (our own code),
    `deltalake` (stock deltalake), `checkpoint`, `crc`.
    """

    kind: str
    version: int | None = None
    path: str | None = None
    field: str | None = None
    sql: Any = None
    log: Any = None
    source: str = "replay"

    def __str__(self) -> str:
        place = [f"version {self.version}"] if self.version is not None else []
        place += [each for each in (self.path, self.field) if each]
        values = ""
        if self.sql is not None or self.log is not None:
            values = f": {_short(self.sql)} in SQL, {_short(self.log)} in the log"
        return f"{self.kind} ({self.source}): {', '.join(place)}{values}"


@dataclass(slots=True)
class Differences:
    """Differences in the order found; beyond `keep` of a kind they are only counted."""

    keep: int = 100
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[Difference] = field(default_factory=list)
    _versions: dict[tuple[str, str], set[int]] = field(default_factory=dict)

    def add(self, difference: Difference) -> None:
        if difference.version is not None:
            place = (difference.source, difference.kind)
            self._versions.setdefault(place, set()).add(difference.version)
        self.counts[difference.kind] += 1
        if self.counts[difference.kind] <= self.keep:
            self.kept.append(difference)

    def add_counted(self, differences: Iterable[Difference], total: int) -> None:
        """Add those of a kind that were looked at, and count all there are."""
        shown = list(differences)
        for each in shown:
            self.add(each)
        if shown:
            self.counts[shown[0].kind] += total - len(shown)

    def versions(self, source: str, *kinds: str) -> set[int]:
        """Return every version at which a source differs, in these ways or in any."""
        places = self._versions.items()
        found = (v for (s, kind), v in places if s == source and (not kinds or kind in kinds))
        return set().union(*found)

    @property
    def total(self) -> int:
        """How many there are, kept or not."""
        return sum(self.counts.values())

    def to_dicts(self) -> list[dict[str, Any]]:
        """The kept ones as plain values."""
        return [asdict(each) for each in self.kept]


def compare_files(
    sql: pa.Table,
    log: pa.Table,
    found: Differences,
    *,
    version: int,
    source: str,
    fields: Sequence[str],
) -> None:
    """Compare live files by name and field."""
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
    found.add_counted(differences, files.num_rows)


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
        if not _says_the_same(name, sql, log):
            found.add(Difference("file", version, path, name, sql, log, source))


def _says_the_same(name: str, sql: Any, log: Any) -> bool:
    """Whether two values that differ mean the same."""
    if name == "tags":  # some writers put an empty map where there are none
        return same_json(sql or "{}", log or "{}")
    if name == "stats":
        return same_stats(sql, log)
    if name == "num_records":  # it stands in the statistics, which deltalake reads as text only
        return log is None
    if name == "extra":  # a checkpoint has no place for fields that its writer does not know
        return _agree(json.loads(sql or "{}"), json.loads(log or "{}"))
    return name in _JSON_FIELDS and same_json(sql, log)


def same_stats(left: str | None, right: str | None) -> bool:
    """Whether two texts of statistics do not contradict each other.

    A checkpoint may leave statistics out, or keep them in columns of its own, which have fewer
    digits and no place for some values. What both tell must be the same.

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
    return _moment(left) is not None and _moment(left) == _moment(right)


def _same_float(left: float, right: float) -> bool:
    """Whether two numbers are the same as floats of 32 bits, which some columns are."""
    try:
        return bool(struct.pack("f", left) == struct.pack("f", right))
    except OverflowError:
        return False


def _moment(value: Any) -> datetime | None:
    """The moment that a text means, in the milliseconds that statistics have."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
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
    """Compare two actions of one kind field by field; absent and empty are the same."""
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
    """Compare what two descriptions have under the same names."""
    for name in sorted({*sql, *log}):
        left, right = sql.get(name), log.get(name)
        if left == right or (not left and not right and left != 0 and right != 0):
            continue
        if name == "schemaString" and same_json(left, right):
            continue
        if name in ("readerFeatures", "writerFeatures") and set(left or ()) == set(right or ()):
            continue
        found.add(Difference(kind, version, path, name, left, right, source))


def same_json(left: str | None, right: str | None) -> bool:
    """Whether two JSON texts say the same.

    >>> same_json('{"a": 1, "b": 2}', '{"b":2,"a":1}'), same_json("{", None)
    (True, False)
    """
    if left is None or right is None:
        return left == right
    try:
        return bool(json.loads(left) == json.loads(right))
    except ValueError:
        return False


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 80 else f"{text[:77]}…"
