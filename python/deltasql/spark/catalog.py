"""The jar for Spark: its path, and the options of a session that uses its catalog or LogStore."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import warnings
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from deltasql.engine.spark.session import require_pyspark
from deltasql.exceptions import TxnLogEngineError
from deltasql.migrate.authority.fence import fenced_tables
from deltasql.serve.service import Service
from deltasql.spark.session import open_catalog

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.uri import DeltaSqlUri

CATALOG_CLASS = "io.deltasql.spark.DeltaSqlCatalog"
_CATALOG_CLASS_4_2 = "io.deltasql.spark.TransactionalDeltaSqlCatalog"
"""The class for Spark 4.2 and later, which cannot be loaded on earlier releases."""
LOG_STORE_CLASS = "io.deltasql.spark.DeltaSqlLogStore"
# The URL schemes of Hadoop under which Spark finds the locations that deltasql supports.
_SCHEMES = ("file", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "adl")
_JAR = "deltasql-spark.jar"
_lock = threading.Lock()
_services: dict[int, tuple[Catalog, str]] = {}
"""The service file of each catalog that this process serves, by the id of the catalog."""


def jar() -> str:
    """Return the path of the jar with the Spark catalog, for `spark.jars`."""
    path = str(files("deltasql.spark").joinpath(_JAR))
    if not Path(path).exists():
        raise TxnLogEngineError(
            f"the jar of the Spark catalog is missing: {path}",
            engine="spark",
            help="Install deltasql from a wheel, or run `make jar` in a clone of the repository.",
        )
    return path


def catalog_options(catalog: str | DeltaSqlUri | Catalog, name: str = "lake") -> dict[str, str]:
    """Return the options of a Spark session in which `name` is a catalog for `spark.sql`.

    A thread of this process handles the requests of Spark; no password and no token is an option.
    On Spark 4.2 and later, a statement that writes reads all tables at one point in time.

        options = deltasql.spark.catalog_options(catalog)
        spark = SparkSession.builder.config(map=options).getOrCreate()
        spark.sql("SELECT * FROM lake.default.sales")
    """
    require_pyspark()
    import pyspark  # lazy import: this module does not need it

    prefix = f"spark.sql.catalog.{name}"
    release = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    return {
        "spark.jars": jar(),
        prefix: CATALOG_CLASS if release < (4, 2) else _CATALOG_CLASS_4_2,
        f"{prefix}.service": _service_file(open_catalog(catalog)),
    }


def log_store_options(catalog: str | DeltaSqlUri | Catalog) -> dict[str, str]:
    """Return the options of a Spark session in which delta-spark commits through the catalog.

    Jobs with `format("delta")` and Delta's SQL stay unchanged. Their commits to tables whose
    database is the authority are decided by the database; other tables behave as before.

        builder = SparkSession.builder.config(map=deltasql.spark.log_store_options(catalog))
        spark = configure_spark_with_delta_pip(builder).getOrCreate()
        rows.write.format("delta").mode("append").save("/lake/sales")

    delta-spark cannot write to tables that are fenced: a warning names them.
    """
    require_pyspark()
    opened = open_catalog(catalog)
    opened.has_log_store = True
    _warn_about_fences(opened)
    return {
        "spark.jars": jar(),
        **{f"spark.delta.logStore.{scheme}.impl": LOG_STORE_CLASS for scheme in _SCHEMES},
        "spark.hadoop.deltasql.logStore.service": _service_file(opened),
    }


def _warn_about_fences(catalog: Catalog) -> None:
    """Warn if delta-spark cannot write to tables of the catalog, because they are fenced."""
    rows = fenced_tables(catalog.store) if catalog.store.exists() else []
    if not (rows or catalog.config.table.fence):
        return
    which = f"these tables are fenced: {', '.join(rows)}" if rows else "table.fence is set"
    warnings.warn(
        f"{which}. delta-spark cannot write to fenced tables, also not through the LogStore: "
        "remove the fence with catalog.unfence(name) or `deltasql table unfence`, or use the Spark "
        "catalog",
        stacklevel=3,
    )


def _service_file(catalog: Catalog) -> str:
    """Return the service file of a catalog; the first call starts the service."""
    with _lock:
        known = _services.get(id(catalog))
        if known is None:
            folder = Path(tempfile.mkdtemp(prefix="deltasql-serve-"))
            path = folder / "service.json"
            service = Service(catalog).start(path)
            atexit.register(_stop, service, folder)
            known = _services[id(catalog)] = (catalog, str(path))
        return known[1]


def _stop(service: Service, folder: Path) -> None:
    service.stop()
    shutil.rmtree(folder, ignore_errors=True)
