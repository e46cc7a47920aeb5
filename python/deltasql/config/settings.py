"""The class `Config`: all sections, loaded from all sources."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, ValidationError

from deltasql.config.problems import problem
from deltasql.config.sections import (
    CacheSettings,
    EngineSettings,
    MirrorSettings,
    PoolSettings,
    RetrySettings,
    Section,
    StorageSettings,
    StoreSettings,
    TableSettings,
)
from deltasql.config.sources import CALL, Layer, environment, files, leaves, merge, nested
from deltasql.exceptions import MASK, TxnLogConfigError, is_secret_name, redact
from deltasql.uri import DeltaSqlUri, parse_uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Setting(NamedTuple):
    """One row of `config show`; secrets are masked."""

    key: str
    value: str
    default: str
    source: str


class Config(BaseModel):
    """All settings; `Config(...)` uses only its arguments, `Config.load()` all sources.

    >>> Config().pool.max_size
    8
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    store: StoreSettings = Field(default_factory=StoreSettings)
    pool: PoolSettings = Field(default_factory=PoolSettings)
    mirror: MirrorSettings = Field(default_factory=MirrorSettings)
    retry: RetrySettings = Field(default_factory=RetrySettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    storage: StorageSettings = Field(default_factory=StorageSettings)
    table: TableSettings = Field(default_factory=TableSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    catalogs: dict[str, SecretStr] = Field(
        default_factory=dict, description="Catalogs by name: `prod = 'deltasql://postgres/…'`."
    )

    _sources: dict[str, str] = PrivateAttr(default_factory=dict)

    def __init__(self, **settings: Any) -> None:
        self._build([Layer(CALL, nested(settings))])

    @classmethod
    def load(cls, path: str | Path | None = None, **overrides: Any) -> Self:
        """Load all sources; a keyword is a section (`pool={...}`) or a key (`pool__max_size=4`).

        >>> Config.load(retry__max_attempts=3).retry.max_attempts
        3
        """
        config = cls.__new__(cls)
        layers = [Layer(CALL, nested(overrides)), environment(cls), *files(path)]
        config._build([layer for layer in layers if layer.values])
        return config

    def _build(self, layers: list[Layer]) -> None:
        merged: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for layer in reversed(layers):
            merge(merged, layer.values)
            sources.update({key: layer.source(key) for key in leaves(layer.values)})
        try:
            super().__init__(**merged)
        except ValidationError as error:
            raise problem(error, type(self), merged, sources) from None
        self._sources = sources

    def catalog(self, name: str) -> DeltaSqlUri:
        """Return the URI of a named catalog.

        >>> Config(catalogs={"dev": "deltasql://sqlite/dev.db"}).catalog("dev").database
        'dev.db'
        """
        if name not in self.catalogs:
            nearest = get_close_matches(name, self.catalogs, 1)
            known = ", ".join(sorted(self.catalogs)) or "none"
            raise TxnLogConfigError(
                f"no catalog is named {name!r}",
                key=f"catalogs.{name}",
                help=(f"Did you mean {nearest[0]!r}? " if nearest else "")
                + f"Named catalogs: {known}; add one as catalogs.{name} = 'deltasql://…'.",
            )
        return parse_uri(self.catalogs[name].get_secret_value())

    def describe(self) -> list[Setting]:
        """Return every key with its value, default and source, for `config show`."""
        rows = []
        for name, field in type(self).model_fields.items():
            section = getattr(self, name)
            defaults = field.get_default(call_default_factory=True)
            pairs = vars(section).items() if isinstance(section, Section) else [("", section)]
            for key, value in pairs:
                path = f"{name}.{key}" if key else name
                default = getattr(defaults, key) if key else defaults
                if not isinstance(value, dict):
                    rows.append(self._row(path, value, _shown(path, default)))
                else:
                    rows += [self._row(entry, text, "") for entry, text in _entries(path, value)]
        return rows

    def _row(self, key: str, value: object, default: str) -> Setting:
        return Setting(key, _shown(key, value), default, self._sources.get(key, "default"))


def _entries(path: str, values: dict[str, Any]) -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _entries(f"{path}.{name}", value)
        else:
            yield f"{path}.{name}", value


def _shown(key: str, value: object) -> str:
    if isinstance(value, SecretStr):
        text = value.get_secret_value()
        return MASK if is_secret_name(key.rpartition(".")[2]) else redact(text)
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else redact(str(value))
