"""The options of an import, and the state that the steps of an import share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.migrate.importing.load_table import LoadCounts
from deltasql.migrate.importing.log_source import open_log
from deltasql.migrate.importing.report import ImportReport
from deltasql.model.progress import Meter
from deltasql.model.protocol import check_writable
from deltasql.storage import absolute_location, open_storage
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.actions import Protocol
    from deltasql.model.progress import OnProgress
    from deltasql.store.store import Store


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """The options of an import.

    Without `name` and `namespace`, a new table gets the name in its log or of its folder, and
    `default_namespace`. `force` does not replace tables below `root`. `properties` are the
    properties of a new table in the catalog. `batch_size` is the number of actions in one SQL
    transaction.
    """

    name: str | None = None
    namespace: str | None = None
    default_namespace: str = DEFAULT_NAMESPACE
    root: str | None = None
    force: bool = False
    dry_run: bool = False
    up_to_version: int | None = None
    since: int | None = None
    batch_size: int | None = None
    verify: bool = True
    engine: object = None
    allow_nested_location: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


class ImportRun:
    """The state of one import: its log, its options, its report and its progress."""

    def __init__(
        self,
        store: Store,
        source: str,
        options: ImportOptions,
        settings: StorageSettings,
        on_progress: OnProgress | None,
    ) -> None:
        self.store, self.options, self.settings = store, options, settings
        self.storage = open_storage(absolute_location(source), settings)
        self.report = ImportReport(self.storage.location)
        self.loaded = LoadCounts()
        self.takes_ownership = False  # True if `force` takes the log over from another catalog
        # This token identifies the run that loads a table, as long as the table is hidden.
        self.token = str(uuid.uuid4())
        self.meter = Meter(self.storage.location, on_progress)
        self._total_commits = 0
        self._began_s = time.monotonic()

    def log(self, listing: LogListing) -> LogSource:
        """Return the log, to be read by the engine in the options."""
        return open_log(self.storage, listing, self.settings, self.options.engine)

    @property
    def seconds(self) -> float:
        """Seconds since the import began."""
        return time.monotonic() - self._began_s

    def expect(self, table: str, commits: int) -> None:
        """Set the name of the table and the number of commits to import."""
        self.meter.table = table
        self.report = replace(self.report, table=table)
        self._total_commits = commits

    def report_progress(self, phase: str, read: LoadCounts | None = None) -> None:
        """Report what was loaded so far; with `read`, report what was read but not loaded."""
        (read or self.loaded).report(self.meter, phase, self._total_commits)

    def count(self, loaded: LoadCounts) -> None:
        """Put into the report how many commits and files were loaded, or would be."""
        self.report = replace(
            self.report,
            commits=loaded.commits,
            files=loaded.files,
            log_bytes=loaded.log_bytes,
            notes=[*self.report.notes, *loaded.notes()],
        )

    def describe(self, files: int, size: int, protocol: Protocol) -> None:
        """Put the latest state of the table into the report."""
        self.report = replace(
            self.report, live_files=files, live_bytes=size, protocol=protocol.body()
        )
        try:
            check_writable(protocol)
        except UnsupportedFeatureError as error:
            self.report.warnings.append(f"the table is read-only here: {error.message}")
