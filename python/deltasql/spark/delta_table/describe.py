"""The history and the details of a table as DataFrames with the columns of delta-spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deltasql.api.inspect.delta_rows import detail_row, history_row
from deltasql.spark.session import spark_location
from deltasql.storage.location import root_address

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from deltasql.snapshot.snapshot import Snapshot

_HISTORY = (
    "version bigint, timestamp timestamp_ltz, userId string, userName string, operation string, "
    "operationParameters map<string,string>, "
    "job struct<jobId:string,jobName:string,jobRunId:string,runId:string,jobOwnerId:string,"
    "triggerType:string>, notebook struct<notebookId:string>, clusterId string, "
    "readVersion bigint, isolationLevel string, isBlindAppend boolean, "
    "operationMetrics map<string,string>, userMetadata string, engineInfo string"
)
_DETAIL = (
    "format string, id string, name string, description string, location string, "
    "createdAt timestamp_ltz, lastModified timestamp_ltz, partitionColumns array<string>, "
    "clusteringColumns array<string>, numFiles bigint, sizeInBytes bigint, "
    "properties map<string,string>, minReaderVersion int, minWriterVersion int, "
    "tableFeatures array<string>"
)
_ALL = 2**31 - 1


def history(spark: SparkSession, snapshot: Snapshot, limit: int | None) -> DataFrame:
    """Return the commits, newest first; metrics have the names of delta-spark."""
    wanted = _ALL if limit is None else limit
    rows = [history_row(each) for each in snapshot.history(wanted)] if wanted > 0 else []
    return spark.createDataFrame(rows, _HISTORY)


def detail(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    """Return one row with the location, the metadata, the size and the protocol of the table."""
    row = detail_row(snapshot, spark_location(root_address(snapshot.table.location)))
    return spark.createDataFrame([row], _DETAIL)
