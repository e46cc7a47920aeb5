"""Settings: what they are, where they come from, which one wins.

From the strongest source to the weakest:

1. what is passed in code: `Config(...)`, or keywords of `Config.load(...)`
2. `DELTASQL_*` variables, nested by two underscores: `DELTASQL_POOL__MAX_SIZE=4`
3. the file passed to `Config.load(path)` or named by `DELTASQL_CONFIG` (TOML or YAML)
4. `deltasql.toml`, `deltasql.yaml` or `deltasql.yml` in the working directory
5. `[tool.deltasql]` in the working directory's `pyproject.toml`
6. `~/.config/deltasql/config.toml` (or under `XDG_CONFIG_HOME`)
7. the defaults

Sources are merged key by key. `Config(...)` alone reads neither variables nor files.

>>> config = Config(pool={"max_size": 4})
>>> config.pool.max_size, config.retry.max_attempts
(4, 15)
>>> Config(pool={"max_sise": 4})
Traceback (most recent call last):
deltasql.exceptions.TxnLogConfigError: unknown setting pool.max_sise (source: the call)
Help: did you mean pool.max_size? docs/reference/config.md lists all keys.
Docs: docs/reference/errors.md#txnlogconfigerror
"""

from deltasql.config.settings import (
    CacheSettings,
    Config,
    EngineSettings,
    MirrorSettings,
    PoolSettings,
    RetrySettings,
    Setting,
    StorageSettings,
    StoreSettings,
    TableSettings,
)
from deltasql.config.sources import fingerprint

__all__ = [
    "CacheSettings",
    "Config",
    "EngineSettings",
    "MirrorSettings",
    "PoolSettings",
    "RetrySettings",
    "Setting",
    "StorageSettings",
    "StoreSettings",
    "TableSettings",
    "fingerprint",
]
