package io.deltasql.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.FilePartition;

/** The files that a version added and removed. A row in files of both kinds is not a change. */
record CancellingPartition(List<FilePartition> parts) implements InputPartition {}
