"""The sections of the configuration, one model each."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)


def _as_text(value: object) -> object:
    """Convert numbers and booleans of TOML and YAML to the strings that object stores expect."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


def _one_spelling(location: str) -> str:
    scheme, mark, rest = location.rstrip("/").partition("://")
    return f"{'s3' if scheme.lower() == 's3a' else scheme.lower()}://{rest}" if mark else scheme


SecretText = Annotated[SecretStr, BeforeValidator(_as_text)]


class Section(BaseModel):
    """An immutable group of settings that rejects unknown keys."""

    # Pydantic's errors must not contain the input, because it may be a secret.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class StoreSettings(Section):
    """The database that contains the log."""

    busy_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=3_600_000,
        description="SQLite and DuckDB: how long to wait for another writer.",
    )
    synchronous: Literal["full", "normal", "off"] = Field(
        default="full",
        description="SQLite: `full` keeps every acknowledged commit through a power loss, "
        "`normal` may lose the last ones, `off` may damage the file: for tests only. Data files "
        "and the published log are flushed to the disk in any case.",
    )
    lock_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: how long a statement waits for a lock; 0 is for ever. A commit "
        "tries three times. For this and the two limits below: until it is set, a limit of the "
        "server, the database or the role counts before the default.",
    )
    statement_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: stop a statement after this; 0 is never.",
    )
    idle_transaction_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: the server ends a transaction, and releases its locks, when its "
        "client sent nothing for this long, for example because it is suspended; 0 is never.",
    )
    bulk_timeout_ms: int = Field(
        default=3_600_000,
        ge=0,
        le=604_800_000,
        description="PostgreSQL: stop a statement of bulk work after this; 0 is never. Bulk work "
        "is a commit of 64 files or more, imports, exports, migrations, and reading long lists "
        "of files.",
    )
    pooler: Literal["auto", "none", "transaction"] = Field(
        default="auto",
        description="PostgreSQL: `transaction` for a pooler such as PgBouncer in transaction "
        "mode: nothing is prepared, and settings hold for one transaction. `none` for the server "
        "itself, or a pooler in session mode. `auto` finds out.",
    )
    application_name: str = Field(
        default="deltasql",
        min_length=1,
        max_length=63,
        description="PostgreSQL: how connections are named in pg_stat_activity.",
    )


class PoolSettings(Section):
    """The connection pool."""

    min_size: int = Field(default=0, ge=0, le=1000, description="Connections kept open when idle.")
    max_size: int = Field(default=8, ge=1, le=1000, description="Connections at most.")
    timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Wait this long for a free one."
    )
    max_lifetime_s: float = Field(
        default=3600.0, gt=0, le=604_800, description="Replace a connection that is older."
    )
    max_idle_s: float = Field(
        default=600.0, gt=0, le=604_800, description="Close a connection that was idle for longer."
    )
    health_check: bool = Field(default=True, description="Test a connection before it is used.")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        if self.min_size > self.max_size:
            raise ValueError(f"min_size {self.min_size} is above max_size {self.max_size}")
        return self


class MirrorSettings(Section):
    """Publishing commits to `_delta_log`."""

    mode: Literal["sync", "async", "off"] = Field(
        default="sync",
        description="`sync` publishes before a commit returns, `async` behind it in a thread, "
        "`off` never: then a reconciler publishes, or nobody.",
    )
    checkpoint_interval: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Versions between two checkpoints of a table without "
        "`delta.checkpointInterval`. Until it is set, commits through deltalake's API write one "
        "every hundred commits, as deltalake does.",
    )
    alert_lag_s: float = Field(
        default=60.0,
        gt=0,
        le=604_800,
        description="Report a table's mirror unhealthy when it lags by more.",
    )
    poll_s: float = Field(
        default=0.25, gt=0, le=3600, description="A reconciler without work looks again after this."
    )
    batch_versions: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Versions published of one table before the next table has its turn; "
        "also how many a commit in `sync` mode catches up at most.",
    )
    initial_backoff_s: float = Field(
        default=1.0, ge=0, le=3600, description="Wait after the first failed attempt."
    )
    max_backoff_s: float = Field(
        default=300.0, ge=0, le=86_400, description="The wait doubles up to this."
    )
    lease_s: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description="So long a reconciler may work at a table before another takes it over.",
    )
    flush_s: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="`async`: how long closing waits for what is not published yet.",
    )


class RetrySettings(Section):
    """Retries of a commit after a conflict."""

    max_attempts: int = Field(default=15, ge=1, le=10_000, description="Attempts of one commit.")
    initial_backoff_ms: float = Field(
        default=5.0, ge=0, le=60_000, description="Wait after the first."
    )
    max_backoff_ms: float = Field(
        default=1000.0, ge=0, le=3_600_000, description="The wait doubles up to this."
    )
    jitter: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The share of each wait that is random, so writers spread.",
    )

    @model_validator(mode="after")
    def _backoffs_fit(self) -> Self:
        if self.initial_backoff_ms > self.max_backoff_ms:
            raise ValueError(
                f"initial_backoff_ms {self.initial_backoff_ms} "
                f"is above max_backoff_ms {self.max_backoff_ms}"
            )
        return self


class EngineSettings(Section):
    """The engine that reads and writes rows."""

    default: Literal["auto", "duckdb", "spark"] = Field(
        default="auto", description="`auto`: Spark for Spark data frames, DuckDB for the rest."
    )
    memory_limit: str | None = Field(
        default=None,
        pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?)?B$",
        description="DuckDB spills to disk above this, for example `4GB`.",
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="DuckDB threads; unset is all."
    )


class StorageSettings(Section):
    """Access to the files of tables."""

    options: dict[str, SecretText] = Field(
        default_factory=dict,
        description="Options of the object store, as `deltalake` takes them in `storage_options`; "
        "what is not given is taken from its usual variables, such as `AWS_ACCESS_KEY_ID`.",
    )
    locations: dict[str, dict[str, SecretText]] = Field(
        default_factory=dict,
        description="Options of locations that begin with a prefix, in the place of `options`: "
        "`{'s3://archive': {'aws_region': 'eu-west-1'}}`. The longest prefix wins.",
    )
    timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="One request to the object store."
    )
    retries: int = Field(default=5, ge=0, le=100, description="Repeat a failed request so often.")

    def plain_options(self, location: str | None = None) -> dict[str, str]:
        """Return the options for a location, with their secrets; pass them only to a driver.

        >>> settings = StorageSettings(locations={"s3://archive": {"aws_region": "eu-west-1"}})
        >>> settings.plain_options("s3://archive/sales"), settings.plain_options("s3://archives/x")
        ({'aws_region': 'eu-west-1'}, {})
        """
        chosen, longest = self.options, -1
        for prefix, options in self.locations.items() if location is not None else ():
            start = _one_spelling(prefix)
            if len(start) > longest and f"{_one_spelling(str(location))}/".startswith(f"{start}/"):
                chosen, longest = options, len(start)
        return {name: value.get_secret_value() for name, value in chosen.items()}

    def identity(self) -> tuple[object, ...]:
        """Return a dict key for these settings; it contains secrets, so never show it."""
        places = {place: self.plain_options(place) for place in sorted(self.locations)}
        return (self.timeout_s, self.retries, repr(self.plain_options()), repr(places))


DEFAULT_ISOLATION_LEVEL: Final = "WriteSerializable"
"""The isolation level of a table if neither its properties nor the configuration set one."""


class TableSettings(Section):
    """Defaults for tables."""

    in_commit_timestamps: bool = Field(
        default=True,
        description="Record commit times in the log. It also makes stock deltalake refuse to "
        "write past the database; turn it off to keep writers that go by path.",
    )
    isolation_level: Literal["WriteSerializable", "Serializable"] = Field(
        default=DEFAULT_ISOLATION_LEVEL,
        description="Isolation level of tables without the property `delta.isolationLevel`.",
    )
    data_root: str | None = Field(
        default=None,
        min_length=1,
        description="Directory under which tables are placed; unset: beside the database.",
    )
    allow_nested_location: bool = Field(
        default=False,
        description="Accept a new table whose folder lies inside another table's, or holds one.",
    )


class CacheSettings(Section):
    """The cache of snapshots in memory."""

    max_bytes: int = Field(
        default=1_073_741_824, ge=0, le=2**50, description="Memory for snapshots; 0 keeps none."
    )
    max_entries: int = Field(default=64, ge=0, le=1_000_000, description="Snapshots at most.")
