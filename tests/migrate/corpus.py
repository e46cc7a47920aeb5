"""A corpus of tables of other writers, one per log feature, each created once per process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deltasql.mirror.log.listing import list_log
from deltasql.storage import open_storage
from tests.mirror.support import LOG
from tests.oracles.readers import Place, stock_table

if TYPE_CHECKING:
    from pathlib import Path

_READ_BY_DELTALAKE = frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"})


@dataclass(frozen=True)
class Source:
    """A table as its writer left it."""

    name: str
    path: Path

    @property
    def place(self) -> Place:
        """The location, for a reader."""
        return Place(str(self.path))

    @cached_property
    def versions(self) -> range:
        """The readable versions: all, or those from the oldest necessary checkpoint on."""
        listing = list_log(open_storage(str(self.path)))
        return range(listing.first_version, listing.last_version + 1)

    @cached_property
    def log(self) -> Mapping[str, bytes]:
        """The files of the log before the import."""
        return log_files(self.path)

    @cached_property
    def reads_with_deltalake(self) -> bool:
        """Whether deltalake supports all reader features of the table."""
        features = stock_table(self.place).protocol().reader_features or ()
        return set(features) <= _READ_BY_DELTALAKE


@dataclass
class Corpus:
    """Tables in one folder, each created on first use."""

    folder: Path
    makers: Mapping[str, Callable[..., None]]
    arguments: tuple[Any, ...] = ()
    made: dict[str, Source] = field(default_factory=dict)

    def source(self, name: str) -> Source:
        """Return a table by the name of its maker."""
        if name not in self.made:
            place = self.folder / name
            self.makers[name](*self.arguments, place)
            source = Source(name, place)
            assert source.log
            self.made[name] = source
        return self.made[name]


def log_files(table: Path) -> dict[str, bytes]:
    """Return every file of a log, including its subfolders."""
    log = table / LOG
    files = (file for file in sorted(log.rglob("*")) if file.is_file())
    return {str(file.relative_to(log)): file.read_bytes() for file in files}


def named(*makers: Callable[..., None]) -> dict[str, Callable[..., None]]:
    """Return functions by name."""
    return {maker.__name__: maker for maker in makers}
