"""Settings and their sources.

The sources, in order of precedence:

1. arguments in code: `Config(...)`, or keywords of `Config.load(...)`
2. environment variables `DELTASQL_SECTION__KEY`, for example `DELTASQL_POOL__MAX_SIZE=4`
3. the file of `Config.load(path)` or of `DELTASQL_CONFIG` (TOML or YAML)
4. `deltasql.toml`, `deltasql.yaml` or `deltasql.yml` in the working directory
5. `[tool.deltasql]` in the working directory's `pyproject.toml`
6. `~/.config/deltasql/config.toml` (or in `XDG_CONFIG_HOME`)
7. the defaults

Sources are merged key by key. `Config(...)` itself reads no variables and no files.

>>> config = Config(pool={"max_size": 4})
>>> config.pool.max_size, config.retry.max_attempts
(4, 15)
>>> Config(pool={"max_sise": 4})
Traceback (most recent call last):
deltasql.exceptions.TxnLogConfigError: unknown setting pool.max_sise (source: the call)
Help: Did you mean pool.max_size? `deltasql docs config` lists all keys.
Docs: deltasql docs TxnLogConfigError
"""

from deltasql.config.sections import (
    CacheSettings,
    EngineSettings,
    MirrorSettings,
    PoolSettings,
    RetrySettings,
    StorageSettings,
    StoreSettings,
    TableSettings,
)
from deltasql.config.settings import Config, Setting
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
