"""Care for the files and the log of a handle."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deltasql.api.raw.base import RawBase
from deltasql.api.vacuum import vacuum

if TYPE_CHECKING:
    from collections.abc import Callable

    from deltalake import CommitProperties, PostCommitHookProperties

    from deltasql.api.transaction import MultiTableTransaction


class MaintainSide(RawBase):
    """The maintenance half of deltalake's RawDeltaTable."""

    def restore(
        self,
        target: Any | None,
        ignore_missing_files: bool,
        protocol_downgrade_allowed: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Make the table what it was at a version or a moment; returns metrics as JSON."""
        if target is None:
            raise TypeError("restore takes a version, a text of a moment, or a datetime")
        metrics = self._commit(
            lambda tx: tx.restore(
                self.name,
                target,
                ignore_missing_files=ignore_missing_files,
                protocol_downgrade_allowed=protocol_downgrade_allowed,
            ),
            commit_properties,
            post_commithook_properties,
        )
        return json.dumps(metrics)

    def undo(
        self,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Take back the last commit; stock deltalake has no such call."""
        metrics = self._commit(
            lambda tx: tx.undo(self.name), commit_properties, post_commithook_properties
        )
        return json.dumps(metrics)

    def repair(
        self,
        dry_run: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
    ) -> str:
        """Take files out of the table that are gone from storage; returns metrics as JSON."""
        metrics = self._commit(
            lambda tx: tx.repair(self.name, dry_run=dry_run),
            commit_properties,
            post_commithook_properties,
        )
        return json.dumps(metrics)

    def vacuum(
        self,
        dry_run: bool,
        retention_hours: int | None,
        enforce_retention_duration: bool,
        commit_properties: CommitProperties | None = None,
        post_commithook_properties: PostCommitHookProperties | None = None,
        full: bool = False,
        keep_versions: list[int] | None = None,
    ) -> list[str]:
        """Delete files that no retained version needs; returns their names."""

        def commit(operate: Callable[[MultiTableTransaction], None]) -> None:
            self._commit(operate, commit_properties, post_commithook_properties)

        return vacuum(
            self.catalog,
            self.row,
            commit,
            retention_hours=retention_hours,
            dry_run=dry_run,
            enforce_retention_duration=enforce_retention_duration,
            full=full,
            keep_versions=keep_versions,
        )
