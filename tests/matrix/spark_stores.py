"""Spark on object stores: the behaviours, with rows that Spark writes to each kind of store.

Spark reaches a store through a connector for Hadoop of Maven Central, deltasql and stock deltalake
through their own clients.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.matrix import servers
from tests.matrix.cell import ROOT, Cell, Skipped, downloaded_jar, run_behaviours
from tests.matrix.stores import AZURITE, FAKE_GCS_SERVER, VERSITYGW, Store

GCS_CONNECTOR = "4.0.4"  # the newest one with a jar that contains its dependencies
HADOOP = "3.5.0"  # the one of pyspark, and in tests/spark/jars/azure.xml
MIB = 2**20
BUILD = ROOT / "build" / "matrix"
S3_JARS = ROOT / "build" / "jars" / "s3"  # from `make jars`


@dataclass(frozen=True)
class Connector:
    """How Spark reaches a store."""

    store: Store
    location: str
    jars: Callable[[], Path]
    """Returns the folder with the jars of the connector."""
    settings: Callable[[str], dict[str, str]]
    """Returns the settings of a session for the address of the server."""


def cells() -> list[Cell]:
    """Return one cell for each kind of store."""
    azure = Connector(
        AZURITE,
        f"abfs://{servers.BUCKET}@{servers.AZURE_ACCOUNT}.dfs.core.windows.net",
        _azure_jars,
        _azure_settings,
    )
    google = Connector(FAKE_GCS_SERVER, f"gs://{servers.BUCKET}", _gcs_jars, _gcs_settings)
    s3 = Connector(
        VERSITYGW, f"s3://{servers.BUCKET}", lambda: ROOT / "build/jars/s3", _no_settings
    )
    connectors = {
        ("S3", f"versitygw {servers.VERSITYGW}, hadoop-aws {HADOOP}"): s3,
        ("Azure Blob Storage", f"azurite {servers.AZURITE}, hadoop-azure {HADOOP}"): azure,
        (
            "Google Cloud Storage",
            f"fake-gcs-server {servers.FAKE_GCS_SERVER}, gcs-connector {GCS_CONNECTOR}",
        ): google,
    }
    return [
        Cell(f"{store} on Spark", releases, partial(_run, connector))
        for (store, releases), connector in connectors.items()
    ]


def _run(connector: Connector, folder: Path) -> dict[str, str]:
    store = connector.store
    settings = {"spark.driver.extraClassPath": f"{connector.jars()}/*"}
    with store.run(folder) as address:
        return run_behaviours(
            sys.executable,
            f"deltasql://sqlite/{folder}/catalog.db",
            connector.location,
            {**store.options, store.endpoint: address},
            folder,
            spark=settings | connector.settings(address),
            environment={"SPARK_LOCAL_IP": "127.0.0.1"},
        )


def _no_settings(address: str) -> dict[str, str]:
    """Return no settings, because deltasql passes its own options for S3 to Spark."""
    return {}


def _azure_settings(address: str) -> dict[str, str]:
    """Return the settings of Hadoop's driver for an account without a hierarchical namespace."""
    account = servers.AZURE_ACCOUNT
    settings = {
        f"account.key.{account}.{service}.core.windows.net": servers.AZURE_KEY
        for service in ("blob", "dfs")
    }
    settings |= {
        "abfs.endpoint": urlsplit(address).netloc,
        "account.hns.enabled": "false",
        "always.use.https": "false",
        "fns.account.service.type": "BLOB",
        # The other library has no factory for sockets without TLS.
        "networking.library": "JDK_HTTP_URL_CONNECTION",
    }
    return {f"spark.hadoop.fs.azure.{name}": value for name, value in settings.items()}


def _azure_jars() -> Path:
    """Return the folder with Hadoop's driver for Azure; Maven downloads it on the first call."""
    folder = BUILD / f"hadoop-azure-{HADOOP}"
    if not folder.exists():
        if shutil.which("mvn") is None:
            raise Skipped("Maven is missing, which downloads hadoop-azure")
        done = subprocess.run(
            [
                *("mvn", "--quiet", "--batch-mode", "-f", "tests/spark/jars/azure.xml"),
                *("dependency:copy-dependencies", "-DincludeScope=runtime"),
                # pyspark already contains these libraries.
                "-DexcludeGroupIds=commons-codec,commons-logging,org.apache.httpcomponents",
                f"-DoutputDirectory={folder}",
            ],
            cwd=ROOT,
            env=os.environ,
            check=False,
        )
        if done.returncode != 0:
            raise Skipped("Maven cannot download hadoop-azure")
    return folder


def _gcs_settings(address: str) -> dict[str, str]:
    """Return the settings of Google's connector.

    Hadoop has defaults for a connector of its own. Google's cannot read the sizes among them, such
    as `64m`, so they are repeated as numbers.
    """
    settings = {
        "impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "auth.type": "UNAUTHENTICATED",
        "client.type": "HTTP_API_CLIENT",
        "operation.move.enable": "false",  # fake-gcs-server cannot move objects
        "project.id": "test",
        "storage.root.url": f"{address}/",
        "block.size": str(64 * MIB),
        "inputstream.inplace.seek.limit": str(8 * MIB),
        "inputstream.min.range.request.size": str(2 * MIB),
        "outputstream.buffer.size": str(8 * MIB),
        "rewrite.max.chunk.size": str(512 * MIB),
    }
    return {f"spark.hadoop.fs.gs.{name}": value for name, value in settings.items()}


def _gcs_jars() -> Path:
    folder = BUILD / f"gcs-connector-{GCS_CONNECTOR}"
    if not list(folder.glob("*.jar")):
        artifact = f"com.google.cloud.bigdataoss:gcs-connector:{GCS_CONNECTOR}:jar:shaded"
        downloaded_jar(artifact, folder)
    return folder
