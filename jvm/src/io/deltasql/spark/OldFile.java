package io.deltasql.spark;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;

/** Reads all live rows of a file in order, with their positions. */
final class OldFile implements Closeable {
    private final PartitionedFile file;
    private final PartitionReader<InternalRow> rows;
    private final long[] deleted;
    private final ProjectingInternalRow withoutIds;
    private final int columns;
    private int nextDeleted;
    private long position = -1;

    /**
     * `readers` return the rows of a file without those that its deletion vector marks. If
     * `hasRowIds`, the rows have a struct with their ids after the columns of the schema.
     */
    OldFile(FileReaders readers, PartitionedFile file, StructType schema, boolean hasRowIds) {
        this.file = file;
        columns = schema.length();
        withoutIds = hasRowIds ? RowWriter.first(schema) : null;
        rows = readers.createReader(new FilePartition(0, new PartitionedFile[] {file}));
        deleted = FileReaders.deleted(file);
    }

    long size() {
        return file.fileSize();
    }

    /** Move to the next row; return false at the end of the file. */
    boolean next() throws IOException {
        if (!rows.next()) {
            return false;
        }
        position++;
        while (deleted != null && nextDeleted < deleted.length
                && deleted[nextDeleted] == position) {
            position++;
            nextDeleted++;
        }
        return true;
    }

    long position() {
        return position;
    }

    /** Return the columns of the table. */
    InternalRow row() {
        if (withoutIds == null) {
            return rows.get();
        }
        withoutIds.project(rows.get());
        return withoutIds;
    }

    /** Return the id and the commit version of the row. */
    InternalRow ids() {
        return rows.get().getStruct(columns, 2);
    }

    @Override
    public void close() throws IOException {
        rows.close();
    }
}
