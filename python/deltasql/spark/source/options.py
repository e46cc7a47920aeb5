"""The options of `format("deltasql")`, parsed from the strings that Spark passes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from deltasql.exceptions import TxnLogConfigError, TxnLogUriError
from deltasql.model.schema.schema import nearest
from deltasql.uri import DeltaSqlUri, is_deltasql_uri, parse_uri, split_table_name

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_KNOWN = {name.lower(): name for name in (*READING, *STREAMING, *WRITING, "path")}
_ACCEPTED = {*_KNOWN, *(name.lower() for name in _ALIASES.values())}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of one `load` or `save`."""

    given: Mapping[str, str]
    """The values by lower-case name, as Spark passes them."""
    catalog: str | None = None
    """The catalog in which a table name without a URI is looked up."""

    def check(self) -> None:
        """Raise if an option is unknown, because it would be ignored silently."""
        if "provider" in self.given or "owner" in self.given:
            raise TxnLogConfigError(
                "CREATE TABLE … USING deltasql and saveAsTable cannot create a table of the "
                "catalog: Spark would only add it to its own catalog",
                key="provider",
                help="Create it with deltasql.spark.write(df, uri) or DeltaTable.create(spark).",
            )
        for name in self.given:
            if name.lower() not in _ACCEPTED and not name.startswith("__"):
                known = sorted(_KNOWN.values())
                raise TxnLogConfigError(
                    f"format('deltasql') has no option {name!r}",
                    key=name,
                    help=f"{nearest(name, known)}Its options are {', '.join(known)}.",
                )

    def table(self) -> DeltaSqlUri:
        """Return the URI of the table that `load` or `save` names."""
        path = self.text("path")
        if path is not None and is_deltasql_uri(path):
            uri = parse_uri(path)
        elif path is not None and self.catalog is not None and "/" not in path:
            namespace, name = split_table_name(path)
            uri = parse_uri(self.catalog).with_table(name, namespace)
        else:
            raise TxnLogUriError(
                f"format('deltasql') has no table in {path!r}",
                help="Give a URI, as in .load('deltasql://sqlite//lake/meta.db?table=sales'), or "
                "call deltasql.spark.register(spark, catalog) and give the table's name.",
            )
        if uri.table is None:
            raise TxnLogUriError(
                f"{uri} names a catalog, not a table",
                help="Add ?table=name.",
            )
        return uri

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
        """Return an option that is a timestamp, or None; without a zone it is UTC."""
        found = self.text(name)
        if found is None:
            return None
        try:
            timestamp = datetime.fromisoformat(found.strip())
        except ValueError as error:
            raise self._wrong(name, "a timestamp such as 2024-05-01T12:00:00Z") from error
        return timestamp if timestamp.tzinfo is not None else timestamp.replace(tzinfo=UTC)

    def names(self, name: str) -> list[str] | None:
        """Return an option that lists column names, separated by commas or as a JSON list."""
        found = self.text(name)
        if found is None:
            return None
        if found.lstrip().startswith("["):
            return [str(each) for each in json.loads(found)]
        return [each.strip() for each in found.split(",") if each.strip()]

    def _wrong(self, name: str, wanted: str) -> TxnLogConfigError:
        return TxnLogConfigError(
            f"the option {name} of format('deltasql') cannot be {self.text(name)!r}",
            key=name,
            help=f"Give {wanted}.",
        )
