package io.deltasql.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Function1;
import scala.collection.Iterator;
import scala.collection.immutable.ArraySeq;

/** Reads files with Spark's Parquet reader, and leaves out deleted rows. */
final class FileReaders implements PartitionReaderFactory {
    private final List<Function1<PartitionedFile, Iterator<InternalRow>>> readers;
    private final boolean isColumnar;
    private final int rowIndex;
    private final StructType columns;
    private final int[] order;
    private final boolean isInOrder;
    private final RowIds ids;

    /**
     * `readers` has one reader per schema. `rowIndex` is the position of the column of row
     * positions, or -1. `ids` may be null; otherwise they add a last column to the rows of a
     * reader. `order` has the position of each returned column in these rows.
     */
    FileReaders(
            List<Function1<PartitionedFile, Iterator<InternalRow>>> readers, boolean isColumnar,
            int rowIndex, StructType columns, int[] order, RowIds ids) {
        this.readers = readers;
        this.isColumnar = isColumnar;
        this.rowIndex = rowIndex;
        this.columns = columns;
        this.order = order;
        this.ids = ids;
        this.isInOrder =
            rowIndex < 0 && Arrays.equals(order, IntStream.range(0, order.length).toArray());
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return isColumnar;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        return new Reader<>((FilePartition) partition);
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        return new Reader<>((FilePartition) partition);
    }

    /** Returns rows, or batches of rows if the reader is columnar. */
    private final class Reader<T> implements PartitionReader<T> {
        private final PartitionedFile[] files;
        private final ProjectingInternalRow ordered;
        private int next;
        private Iterator<?> rows;
        private long[] deleted;
        private RowIds.OfFile idsOfFile;
        private Object current;

        Reader(FilePartition partition) {
            files = partition.files();
            ordered = new ProjectingInternalRow(columns, ArraySeq.unsafeWrapArray(
                (Object[]) Arrays.stream(order).boxed().toArray(Integer[]::new)).toIndexedSeq());
        }

        @Override
        public boolean next() throws IOException {
            while (true) {
                while (rows != null && rows.hasNext()) {
                    current = rows.next();
                    if (!isDeleted()) {
                        return true;
                    }
                }
                close();
                if (next == files.length) {
                    return false;
                }
                open(files[next++]);
            }
        }

        private boolean isDeleted() {
            return deleted != null
                && Arrays.binarySearch(deleted, ((InternalRow) current).getLong(rowIndex)) >= 0;
        }

        private void open(PartitionedFile file) {
            InputFileBlockHolder.set(file.urlEncodedPath(), file.start(), file.length());
            deleted = deleted(file);
            idsOfFile = ids == null ? null : ids.of(file);
            var own = file.otherConstantMetadataColumnValues();
            rows = readers.get((Integer) own.apply(TableScan.SCHEMA)).apply(file);
        }

        @Override
        @SuppressWarnings("unchecked")
        public T get() {
            if (isInOrder) {
                return (T) current;
            }
            if (current instanceof ColumnarBatch batch) {
                ColumnVector[] vectors =
                    Arrays.stream(order).mapToObj(batch::column).toArray(ColumnVector[]::new);
                return (T) new ColumnarBatch(vectors, batch.numRows());
            }
            InternalRow row = (InternalRow) current;
            ordered.project(idsOfFile == null ? row : idsOfFile.added(row));
            return (T) ordered;
        }

        @Override
        public void close() throws IOException {
            if (rows instanceof Closeable open) {
                open.close();
            }
            rows = null;
        }
    }

    /** Return the positions of the deleted rows of a file; null if it has no deletion vector. */
    static long[] deleted(PartitionedFile file) {
        var own = file.otherConstantMetadataColumnValues();
        return own.contains(TableScan.DELETED)
            ? unpacked((byte[]) own.apply(TableScan.DELETED)) : null;
    }

    private static long[] unpacked(byte[] content) {
        long[] found = new long[content.length / 8];
        ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(found);
        return found;
    }
}
