"""One import on its way: what it was asked for, how far it is, what it has to tell."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from deltasql.exceptions import UnsupportedFeatureError
from deltasql.migrate.importing.load_table import Loaded
from deltasql.migrate.importing.log_source import open_log
from deltasql.migrate.importing.report import ImportProgress, ImportReport
from deltasql.model.protocol import check_writable
from deltasql.model.schema.schema import StructType
from deltasql.storage import absolute_location, open_storage
from deltasql.uri import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from deltasql.config import StorageSettings
    from deltasql.migrate.importing.log_source import LogSource
    from deltasql.migrate.importing.report import ImportPhase
    from deltasql.mirror.log.listing import LogListing
    from deltasql.model.actions import Metadata, Protocol
    from deltasql.store.store import Store

Tell = Callable[[ImportProgress], None]


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """How a table is taken over.

    `name` and `namespace` are those of the table, else the log and its folder tell them, with
    `default_namespace` for one that is new; what lies below `root` does not give way to it;
    `properties` are the catalog's own of a new table; `batch_size` is how many actions one SQL
    transaction takes.
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
    """What the steps of one import share."""

    def __init__(
        self,
        store: Store,
        source: str,
        options: ImportOptions,
        settings: StorageSettings,
        tell: Tell | None,
    ) -> None:
        self.store, self.options, self.settings = store, options, settings
        self.storage = open_storage(absolute_location(source), settings)
        self.report = ImportReport(self.storage.location)
        self.loaded = Loaded()
        self.takes_over = False  # by force, from the catalog that the log belongs to
        # What a table that is loaded out of sight is marked with.
        self.token = str(uuid.uuid4())
        self._progress = ImportProgress(self.storage.location)
        self._tell = tell or (lambda _: None)

    def log(self, listing: LogListing) -> LogSource:
        """Return the log as the engine that is wanted reads it."""
        return open_log(self.storage, listing, self.settings, self.options.engine)

    @property
    def seconds(self) -> float:
        """How long it runs by now."""
        return self._progress.seconds

    def expect(self, table: str, commits: int) -> None:
        """Say what is imported under which name, and how many commits there are."""
        self.report.table = self._progress.table = table
        self._progress.total_commits = commits

    def tell(self, phase: ImportPhase, seen: Loaded | None = None) -> None:
        """Say how far it is: by what is loaded, or by what was only looked at."""
        counts, progress = seen or self.loaded, self._progress
        progress.phase = phase
        progress.commits, progress.files = counts.commits, counts.files
        progress.log_bytes = counts.log_bytes
        self._tell(progress)

    def count(self, seen: Loaded) -> None:
        """Put into the report what was loaded, or would be."""
        report = self.report
        report.commits, report.files, report.log_bytes = seen.commits, seen.files, seen.log_bytes
        report.notes += seen.notes()

    def describe(self, files: int, size: int, protocol: Protocol, metadata: Metadata) -> None:
        """Put the table as it is at its last version into the report."""
        report = self.report
        report.live_files, report.live_bytes = files, size
        report.protocol = protocol.body()
        try:
            schema = StructType.from_json(metadata.schema_string)
            check_writable(protocol, schema, metadata.configuration)
        except UnsupportedFeatureError as error:
            report.warnings.append(f"it can be read here, not written: {error.message}")
