package io.deltasql.spark;

import java.util.Map;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** The changes of a range of versions, or a stream of changes. */
final class ChangesScan implements ScanBuilder, SupportsPushDownRequiredColumns, Scan, Batch {
    private final String name;
    private final Service service;
    private final Map<String, Object> request;
    private final StructType schema;
    private StructType columns;
    private ChangedFiles files;

    ChangesScan(String name, Service service, Map<String, Object> request, StructType schema) {
        this.name = name;
        this.service = service;
        this.request = request;
        this.schema = schema;
        this.columns = schema;
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = required;
    }

    @Override
    public Scan build() {
        return this;
    }

    @Override
    public StructType readSchema() {
        return columns;
    }

    @Override
    public String description() {
        return "changes of " + name;
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        return new TableStream(service, request, schema, columns);
    }

    @Override
    public InputPartition[] planInputPartitions() {
        return files().partitions();
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return files().readers();
    }

    /** Ask the service for the files, once. */
    private synchronized ChangedFiles files() {
        if (files == null) {
            files = new ChangedFiles(service.lines("changes_files", request), schema, columns);
        }
        return files;
    }
}
