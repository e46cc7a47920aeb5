"""Let Spark reach the buckets of tables with the options that reach them from here.

Hadoop's S3 client takes settings for a bucket alone. They are set in the session, on classic Spark
and on Connect alike, and stay there: rows are read whenever a user asks for them. What a session
was started with for a bucket (`spark.hadoop.fs.s3a.bucket.…`) is left as it is. A bucket has one
set of credentials in a session: Hadoop keeps the client that it opened with the first.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from deltasql import telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from deltasql.config import StorageSettings
    from deltasql.engine.live_files import LiveFiles

_log = logging.getLogger(__name__)
_SCHEMES = ("s3://", "s3a://")
_NAMES = {
    "access_key_id": "access.key",
    "secret_access_key": "secret.key",
    "session_token": "session.token",
    "token": "session.token",
    "endpoint": "endpoint",
    "endpoint_url": "endpoint",
    "region": "endpoint.region",
    "default_region": "endpoint.region",
}
_PROVIDER = "aws.credentials.provider"
_CREDENTIALS = ("access.key", "secret.key", "session.token", _PROVIDER)
_SECRETS = ("access.key", "secret.key", "session.token")
_PROVIDERS = "org.apache.hadoop.fs.s3a"
_TRUE = ("1", "true", "on", "yes", "y")
_told: set[str] = set()
"""Buckets of which it was said that they got other credentials."""


def reach(spark: SparkSession, location: str, storage: StorageSettings) -> None:
    """Give the session the options of a location; elsewhere than in S3 nothing is done."""
    if not location.startswith(_SCHEMES):
        return
    wanted = hadoop_settings(storage.plain_options(location))
    prefix = f"fs.s3a.bucket.{_bucket(location)}"
    own = {
        name
        for name in (*_CREDENTIALS, *wanted)
        if wanted and spark.conf.get(f"spark.hadoop.{prefix}.{name}", None) is not None
    }
    # Half of one key and half of another open nothing.
    kept = own.union(_CREDENTIALS) if own.intersection(_CREDENTIALS) else own
    ours = {f"{prefix}.{name}": value for name, value in wanted.items() if name not in kept}
    keys = [f"{prefix}.{name}" for name in _SECRETS if f"{prefix}.{name}" in ours]
    if any(spark.conf.get(key, None) not in (None, ours[key]) for key in keys):
        _tell(_bucket(location))
    for key, value in ours.items():
        spark.conf.set(key, value)


def reach_files(spark: SparkSession, files: LiveFiles) -> None:
    """Give the session the options of all buckets that files of a table are in."""
    reach(spark, files.location, files.settings)
    own = _bucket(files.location)
    paths = files.listed["path"]
    # The others are below the table's own location.
    elsewhere = paths.filter(pc.match_substring_regex(paths, "^s3a?://")).to_pylist()
    for each in {path[: path.find("/", path.find("//") + 2)] for path in elsewhere}:
        if _bucket(each) != own:
            reach(spark, each, files.settings)


def hadoop_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Return options of deltalake's as Hadoop's S3 client names them.

    >>> hadoop_settings({"AWS_REGION": "eu-west-1", "aws_endpoint_url": "http://[::1]:9000"})
    {'endpoint': 'http://[::1]:9000', 'endpoint.region': 'eu-west-1', 'path.style.access': 'true'}
    """
    plain = {name.lower().removeprefix("aws_"): value for name, value in options.items()}
    found = {theirs: plain[name] for name, theirs in _NAMES.items() if name in plain}
    if "endpoint" in found:
        hosted = plain.get("virtual_hosted_style_request", "").lower() in _TRUE
        found["path.style.access"] = "false" if hosted else "true"
    provider = None
    if plain.get("skip_signature", "").lower() in _TRUE:
        provider = "AnonymousAWSCredentialsProvider"
    elif "access.key" in found and "secret.key" in found:
        kind = "Temporary" if "session.token" in found else "Simple"
        provider = f"{kind}AWSCredentialsProvider"
    if provider is not None:
        found[_PROVIDER] = f"{_PROVIDERS}.{provider}"
    return found


def _tell(bucket: str) -> None:
    """Say once that a bucket has other credentials now than it had."""
    if bucket in _told:
        return
    _told.add(bucket)
    telemetry.log(
        _log,
        logging.WARNING,
        "a bucket got other credentials in this Spark session, which may go on with the first ones",
        bucket=bucket,
    )


def _bucket(location: str) -> str:
    return location.partition("://")[2].partition("/")[0]
