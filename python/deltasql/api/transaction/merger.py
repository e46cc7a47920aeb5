"""MERGE inside of a transaction, clause by clause, with the words of deltalake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.operations.merge.plan import Clause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from deltasql.operations.merge.plan import MergeSpec


class Merger:
    """Takes the clauses of a merge in their order; `execute` stages it.

    The methods are those of `deltalake.table.TableMerger`.
    """

    def __init__(
        self, spec: MergeSpec, columns: Sequence[str], stage: Callable[[], dict[str, int]]
    ) -> None:
        """`columns` are those of the source."""
        self._spec, self._columns, self._stage = spec, columns, stage

    def when_matched_update(self, updates: Mapping[str, str], predicate: str | None = None) -> Self:
        """Set columns of rows that match: `{column: expression}`."""
        self._spec.matched.append(Clause("update", predicate, dict(updates)))
        return self

    def when_matched_update_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Set all columns that the source has, but some."""
        return self.when_matched_update(self._all(except_cols), predicate)

    def when_matched_delete(self, predicate: str | None = None) -> Self:
        """Delete rows that match."""
        self._spec.matched.append(Clause("delete", predicate))
        return self

    def when_not_matched_insert(
        self, updates: Mapping[str, str], predicate: str | None = None
    ) -> Self:
        """Insert a row for every source row without a match: `{column: expression}`."""
        self._spec.not_matched.append(Clause("insert", predicate, dict(updates)))
        return self

    def when_not_matched_insert_all(
        self, predicate: str | None = None, except_cols: Sequence[str] | None = None
    ) -> Self:
        """Insert source rows without a match, with all their columns, but some."""
        return self.when_not_matched_insert(self._all(except_cols), predicate)

    def when_not_matched_by_source_update(
        self, updates: Mapping[str, str], predicate: str | None = None
    ) -> Self:
        """Set columns of rows that no source row matches."""
        self._spec.not_matched_by_source.append(Clause("update", predicate, dict(updates)))
        return self

    def when_not_matched_by_source_delete(self, predicate: str | None = None) -> Self:
        """Delete rows that no source row matches."""
        self._spec.not_matched_by_source.append(Clause("delete", predicate))
        return self

    def execute(self) -> dict[str, int]:
        """Stage the merge and return its metrics."""
        return self._stage()

    def _all(self, except_cols: Sequence[str] | None) -> dict[str, str]:
        source = self._spec.source_alias or "source"
        names = [name for name in self._columns if name not in (except_cols or ())]
        return {quoted(name): f"{quoted(source)}.{quoted(name)}" for name in names}


def quoted(name: str) -> str:
    """Quote a name for an expression.

    >>> quoted("my column")
    '`my column`'
    """
    return "`" + name.replace("`", "``") + "`"
