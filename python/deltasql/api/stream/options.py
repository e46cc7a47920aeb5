"""The options of a read or write, parsed from the strings that Spark passes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError
from deltasql.model.schema.schema import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

READING = ("versionAsOf", "timestampAsOf", "readChangeFeed")
STREAMING = (
    "startingVersion",
    "startingTimestamp",
    "endingVersion",
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
)
WRITING = (
    "mergeSchema",
    "overwriteSchema",
    "replaceWhere",
    "partitionBy",
    "txnAppId",
    "txnVersion",
    "userMetadata",
)
_ALIASES = {"readChangeFeed": "readChangeData"}
"""Older names of options that delta-spark also accepts."""


@dataclass(frozen=True, slots=True)
class TextOptions:
    """Options as strings, with methods that return their typed values."""

    given: Mapping[str, str]
    """The values by lower-case name, as Spark passes them."""
    owner: str = "format('deltasql')"
    """How error messages name the reader or writer that has these options."""

    def check_names(self, known: Iterable[str]) -> None:
        """Raise if an option is unknown; otherwise the option would be ignored silently."""
        names = sorted(known)
        accepted = {each.lower() for name in names for each in (name, _ALIASES.get(name, name))}
        for name in self.given:
            if name.lower() not in accepted and not name.startswith("__"):
                raise TxnLogConfigError(
                    f"{self.owner} has no option {name!r}",
                    key=name,
                    help=f"{nearest(name, names)}Its options are {', '.join(names)}.",
                )

    def text(self, name: str) -> str | None:
        """Return an option as a string, or None."""
        found = self.given.get(name.lower())
        if found is None and name in _ALIASES:
            return self.given.get(_ALIASES[name].lower())
        return found

    def flag(self, name: str) -> bool:
        """Return an option that is true or false; the default is false."""
        found = (self.text(name) or "false").strip().lower()
        if found not in ("true", "false"):
            raise self._wrong(name, "true or false")
        return found == "true"

    def number(self, name: str) -> int | None:
        """Return an option that is a non-negative integer, or None."""
        found = self.text(name)
        if found is None:
            return None
        if not found.strip().isdecimal():
            raise self._wrong(name, "a whole number")
        return int(found)

    def timestamp(self, name: str) -> datetime | None:
        """Return an option that is a timestamp, or None; a time without a zone is in UTC."""
        found = self.text(name)
        if found is None:
            return None
        try:
            timestamp = datetime.fromisoformat(found.strip())
        except ValueError as error:
            raise self._wrong(name, "a timestamp such as 2024-05-01T12:00:00Z") from error
        return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)

    def _wrong(self, name: str, wanted: str) -> TxnLogConfigError:
        return TxnLogConfigError(
            f"the option {name} of {self.owner} cannot be {self.text(name)!r}",
            key=name,
            help=f"Give {wanted}.",
        )
