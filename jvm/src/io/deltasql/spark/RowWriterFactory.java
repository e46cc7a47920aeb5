package io.deltasql.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;

/** Creates the writers of an UPDATE, DELETE or MERGE; runs on executors. */
final class RowWriterFactory implements DeltaWriterFactory {
    private final StructType schema;
    private final List<String> partitionColumns;
    private final FileWriterFactory files;
    private final FileWriterFactory changes;
    private final RowChecks checks;
    private final RowNumbers numbers;
    private final boolean marks;
    private final boolean hasRowIds;
    private final boolean keepsIds;
    private final FileReaders readers;
    private final Broadcast<Map<String, PartitionedFile>> old;

    /**
     * `changes` writes change data, or is null; `checks` and `numbers` may be null. If `marks`, rows
     * are marked as deleted, and files are not written again. `old` has the files that Spark has
     * read; if `hasRowIds`, their readers return the ids of rows. `deletes` says that no row is
     * updated.
     */
    RowWriterFactory(
            StructType schema, List<String> partitionColumns, FileWriterFactory files,
            FileWriterFactory changes, RowChecks checks, RowNumbers numbers,
            boolean marks, boolean hasRowIds, boolean deletes, FileReaders readers, Broadcast<Map<String, PartitionedFile>> old) {
        this.schema = schema;
        this.partitionColumns = new ArrayList<>(partitionColumns);
        this.files = files;
        this.changes = changes;
        this.checks = checks;
        this.numbers = numbers;
        this.marks = marks;
        this.hasRowIds = hasRowIds;
        this.keepsIds = hasRowIds && !(marks && deletes);
        this.readers = readers;
        this.old = old;
    }

    @Override
    public DeltaWriter<InternalRow> createWriter(int partitionId, long taskId) {
        int[] partition = partitionColumns.stream().mapToInt(schema::fieldIndex).toArray();
        return new RowWriter(
            new OpenWriters(files, schema, partition, partitionId, taskId),
            changes == null
                ? null : new OpenWriters(changes, schema, partition, partitionId, taskId),
            checks == null ? null : new ChangeChecks(checks, schema, partitionId),
            numbers,
            marks,
            keepsIds,
            schema,
            url -> new OldFile(readers, old.value().get(url), schema, hasRowIds));
    }
}
