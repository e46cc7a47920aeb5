package io.deltasql.spark;

import java.io.Closeable;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/** Reads all live rows of a file in order, with their positions. */
final class OldFile implements Closeable {
    private final PartitionedFile file;
    private final PartitionReader<InternalRow> rows;
    private final long[] deleted;
    private int nextDeleted;
    private long position = -1;

    /** `readers` return the rows of a file without those that its deletion vector marks. */
    OldFile(FileReaders readers, PartitionedFile file) {
        this.file = file;
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

    InternalRow row() {
        return rows.get();
    }

    @Override
    public void close() throws IOException {
        rows.close();
    }
}
