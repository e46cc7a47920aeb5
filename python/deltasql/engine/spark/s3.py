"""Options that let Spark access the S3 buckets of tables in the same way as this process.

Hadoop's S3 client supports options per bucket. They are passed to a single read or write, and never
set on the session. Options that the session has for a bucket (`fs.s3a.bucket.…`, also with the
prefix `spark.hadoop.`) take precedence. Within one process, a bucket always has the same
credentials, because Hadoop caches the first client that it creates for a bucket.
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
    from deltasql.engine.files.live_files import LiveFiles

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
_first_credentials: dict[str, int] = {}
"""For each bucket, the hash of the credentials that were used first."""
_warned: set[str] = set()
"""Buckets for which a warning about different credentials was logged."""


def bucket_options(spark: SparkSession, location: str, storage: StorageSettings) -> dict[str, str]:
    """Return the options of a read or write at a location; empty if it is not in S3."""
    options = {}
    if location.startswith(_SCHEMES):
        options = hadoop_settings(storage.plain_options(location))
    if not options:
        return {}
    prefix = f"fs.s3a.bucket.{_bucket(location)}"
    settings = spark.conf.getAll
    in_session = {
        name
        for name in (*_CREDENTIALS, *options)
        if not settings.keys().isdisjoint((f"{prefix}.{name}", f"spark.hadoop.{prefix}.{name}"))
    }
    # If the session sets one of the credentials' options, pass none of ours: an access key of the
    # session must not be combined with a secret key of this process.
    if in_session.intersection(_CREDENTIALS):
        in_session.update(_CREDENTIALS)
    passed = {name: value for name, value in options.items() if name not in in_session}
    secrets = hash(tuple(passed.get(name) for name in _SECRETS))
    if _first_credentials.setdefault(_bucket(location), secrets) != secrets:
        _warn(_bucket(location))
    return {f"{prefix}.{name}": value for name, value in passed.items()}


def files_options(spark: SparkSession, files: LiveFiles) -> dict[str, str]:
    """Return the options for reading these files. They can be in several buckets."""
    paths = files.listed["path"]
    # Files with a relative path are below the table's own location.
    elsewhere = paths.filter(pc.match_substring_regex(paths, "^s3a?://")).to_pylist()
    roots = {path[: path.find("/", path.find("//") + 2)] for path in elsewhere}
    found: dict[str, str] = {}
    for bucket, location in {_bucket(each): each for each in (*roots, files.location)}.items():
        if bucket:
            found.update(bucket_options(spark, location, files.settings))
    return found


def hadoop_settings(options: Mapping[str, str]) -> dict[str, str]:
    """Translate deltalake's storage options to the names of Hadoop's S3 client.

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


def _warn(bucket: str) -> None:
    """Log, once per bucket, that the bucket is accessed with different credentials than before."""
    if bucket in _warned:
        return
    _warned.add(bucket)
    telemetry.log(
        _log,
        logging.WARNING,
        "the credentials of a bucket changed, but Spark may continue to use the old ones",
        bucket=bucket,
    )


def _bucket(location: str) -> str:
    return location.partition("://")[2].partition("/")[0]
