package io.deltasql.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.execution.datasources.FilePartition;

/** All files that a version added and removed; a row that is in both kinds is not a change. */
record CancellingPartition(List<FilePartition> parts) implements InputPartition {}
