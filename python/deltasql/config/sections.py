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
        "`normal` may lose the latest commits, `off` may damage the file (use it only in tests). "
        "Data files and the published log are always flushed to disk.",
    )
    lock_timeout_ms: int = Field(
        default=30_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: how long a statement waits for a lock; 0 means no limit. A commit "
        "tries three times. The default of this setting and of the next two applies only if the "
        "server, the database and the role set no limit.",
    )
    statement_timeout_ms: int = Field(
        default=300_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: cancel a statement after this time; 0 means never.",
    )
    idle_transaction_timeout_ms: int = Field(
        default=60_000,
        ge=0,
        le=86_400_000,
        description="PostgreSQL: the server ends a transaction and releases its locks if the "
        "client sends nothing for this time, for example because it is suspended; 0 means never.",
    )
    bulk_timeout_ms: int = Field(
        default=3_600_000,
        ge=0,
        le=604_800_000,
        description="PostgreSQL: cancel a statement of bulk work after this time; 0 means never. "
        "Bulk work is a commit of 64 files or more, imports, exports, migrations, and reading "
        "long lists of files.",
    )
    pooler: Literal["auto", "none", "transaction"] = Field(
        default="auto",
        description="PostgreSQL: `transaction` for a pooler such as PgBouncer in transaction "
        "mode: statements are not prepared, and settings apply to one transaction. `none` for a "
        "direct connection or a pooler in session mode. `auto` detects which one it is.",
    )
    application_name: str = Field(
        default="deltasql",
        min_length=1,
        max_length=63,
        description="PostgreSQL: the name of connections in pg_stat_activity.",
    )


class PoolSettings(Section):
    """The connection pool."""

    min_size: int = Field(
        default=0, ge=0, le=1000, description="Number of idle connections to keep open."
    )
    max_size: int = Field(default=8, ge=1, le=1000, description="Maximum number of connections.")
    timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="How long to wait for a free connection."
    )
    max_lifetime_s: float = Field(
        default=3600.0, gt=0, le=604_800, description="Replace connections older than this."
    )
    max_idle_s: float = Field(
        default=600.0,
        gt=0,
        le=604_800,
        description="Close connections that are idle for longer than this.",
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
        description="`sync` publishes before a commit returns, `async` in a thread after it "
        "returns. With `off`, commits are published only if a reconciler runs.",
    )
    checkpoint_interval: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Number of versions between two checkpoints of a table without "
        "`delta.checkpointInterval`. Without this setting, commits through deltalake's API write "
        "a checkpoint every hundred commits, as deltalake does.",
    )
    alert_lag_s: float = Field(
        default=60.0,
        gt=0,
        le=604_800,
        description="Report a target as unhealthy if its lag is longer than this.",
    )
    poll_s: float = Field(
        default=0.25,
        gt=0,
        le=3600,
        description="How often an idle reconciler looks for new commits.",
    )
    batch_versions: int = Field(
        default=500,
        ge=1,
        le=100_000,
        description="Number of versions of one table that a reconciler publishes before it "
        "continues with the next table, and the maximum that a commit in `sync` mode publishes.",
    )
    initial_backoff_s: float = Field(
        default=1.0, ge=0, le=3600, description="How long to wait after the first failed attempt."
    )
    max_backoff_s: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        description="The wait doubles after each failed attempt, up to this limit.",
    )
    lease_s: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description="How long a reconciler may publish a table before another one may take over.",
    )
    auto_compact_s: float = Field(
        default=30.0,
        gt=0,
        le=86_400,
        description="How often `mirror run` looks for small files in tables with the property "
        "`delta.autoOptimize.autoCompact`.",
    )
    flush_s: float = Field(
        default=30.0,
        ge=0,
        le=86_400,
        description="`async`: how long closing a catalog waits for commits that are not "
        "published yet.",
    )


class RetrySettings(Section):
    """Retries of a commit after a temporary error of the database."""

    max_attempts: int = Field(
        default=15, ge=1, le=10_000, description="Maximum number of attempts of a commit."
    )
    initial_backoff_ms: float = Field(
        default=5.0, ge=0, le=60_000, description="How long to wait after the first attempt."
    )
    max_backoff_ms: float = Field(
        default=1000.0,
        ge=0,
        le=3_600_000,
        description="The wait doubles after each failed attempt, up to this limit.",
    )
    jitter: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="The random share of each wait. It prevents writers from retrying at the "
        "same time.",
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
        default="auto", description="`auto`: Spark for Spark DataFrames, otherwise DuckDB."
    )
    memory_limit: str | None = Field(
        default=None,
        pattern=r"^[0-9]+(\.[0-9]+)? ?([KMGT]i?)?B$",
        description="DuckDB spills to disk above this limit, for example `4GB`.",
    )
    threads: int | None = Field(
        default=None, ge=1, le=1024, description="Number of DuckDB threads. Default: one per core."
    )


class StorageSettings(Section):
    """Access to the files of tables."""

    options: dict[str, SecretText] = Field(
        default_factory=dict,
        description="Options of the object store, as in deltalake's `storage_options`. Options "
        "that are not set come from the usual environment variables, such as `AWS_ACCESS_KEY_ID`.",
    )
    locations: dict[str, dict[str, SecretText]] = Field(
        default_factory=dict,
        description="Options for locations below a prefix; they replace `options`. For example: "
        "`{'s3://archive': {'aws_region': 'eu-west-1'}}`. The longest prefix wins.",
    )
    timeout_s: float = Field(
        default=30.0, gt=0, le=3600, description="Time limit of one request to the object store."
    )
    retries: int = Field(
        default=5, ge=0, le=100, description="How often a failed request is repeated."
    )

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
        description="Record commit times in the log. Stock deltalake then cannot write to the "
        "table's path. Disable it if path-based writers must continue to work.",
    )
    fence: bool = Field(
        default=False,
        description="Fence new tables: add a writer feature that no other engine knows, so that "
        "delta-spark, DuckDB and deltalake cannot commit to the table's path.",
    )
    isolation_level: Literal["WriteSerializable", "Serializable"] = Field(
        default=DEFAULT_ISOLATION_LEVEL,
        description="Isolation level of tables without the property `delta.isolationLevel`.",
    )
    data_root: str | None = Field(
        default=None,
        min_length=1,
        description="Folder in which new tables are created. Default: next to the database.",
    )
    allow_nested_location: bool = Field(
        default=False,
        description="Accept a location that is inside, or contains, another table's folder.",
    )


class CacheSettings(Section):
    """The cache of snapshots in memory."""

    max_bytes: int = Field(
        default=1_073_741_824,
        ge=0,
        le=2**50,
        description="Memory for cached snapshots; 0 disables the cache.",
    )
    max_entries: int = Field(
        default=64, ge=0, le=1_000_000, description="Maximum number of cached snapshots."
    )
