package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes rows to one file per partition, in any order of partitions.
 *
 * Few files are open at a time, because each needs memory; a partition may get several files.
 */
final class OpenWriters {
    private static final int MOST_OPEN = 8;

    private final FileWriterFactory factory;
    private final StructType schema;
    private final int[] partition;
    private final int partitionId;
    private final long taskId;
    private final Map<List<Object>, DataWriter<InternalRow>> open =
        new LinkedHashMap<>(MOST_OPEN, 0.75f, true);
    private final List<WrittenFiles.WrittenFile> written = new ArrayList<>();

    /** `partition` has the positions of the partition columns in the rows. */
    OpenWriters(
            FileWriterFactory factory, StructType schema, int[] partition, int partitionId,
            long taskId) {
        this.factory = factory;
        this.schema = schema;
        this.partition = partition;
        this.partitionId = partitionId;
        this.taskId = taskId;
    }

    void write(InternalRow row) throws IOException {
        List<Object> key = partitionOf(row);
        DataWriter<InternalRow> writer = open.get(key);
        if (writer == null) {
            if (open.size() == MOST_OPEN) {
                finish(open.remove(open.keySet().iterator().next()));
            }
            writer = factory.createWriter(partitionId, taskId);
            open.put(key, writer);
        }
        writer.write(row);
    }

    private List<Object> partitionOf(InternalRow row) {
        Object[] values = new Object[partition.length];
        for (int index = 0; index < values.length; index++) {
            int position = partition[index];
            Object value = row.isNullAt(position)
                ? null : row.get(position, schema.apply(position).dataType());
            // The row's memory is used again for the next row.
            values[index] = value instanceof UTF8String text ? text.clone()
                : value instanceof byte[] bytes ? UTF8String.fromBytes(bytes.clone()) : value;
        }
        return Arrays.asList(values);
    }

    private void finish(DataWriter<InternalRow> writer) throws IOException {
        written.addAll(((WrittenFiles) writer.commit()).files());
    }

    /** Close all files; the next rows get new ones. */
    void finish() throws IOException {
        for (DataWriter<InternalRow> writer : open.values()) {
            finish(writer);
        }
        open.clear();
    }

    /** Return the files that are closed, with rows that break a rule and an error, or null. */
    WrittenFiles written(RowChecks.BrokenRows broken, DeltaSqlException refused) {
        return new WrittenFiles(written, broken, refused);
    }

    /** Delete the files. */
    void abort() throws IOException {
        for (DataWriter<InternalRow> writer : open.values()) {
            writer.abort();
        }
        factory.delete(written);
    }
}
