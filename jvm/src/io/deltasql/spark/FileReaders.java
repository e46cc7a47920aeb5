package io.deltasql.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.rdd.InputFileBlockHolder;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
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

    /** `readers` has one reader per schema; `rowIndex` is the column of row positions, or -1. */
    FileReaders(
            List<Function1<PartitionedFile, Iterator<InternalRow>>> readers, boolean isColumnar,
            int rowIndex, StructType columns) {
        this.readers = readers;
        this.isColumnar = isColumnar;
        this.rowIndex = rowIndex;
        this.columns = columns;
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
        private final ProjectingInternalRow withoutIndex;
        private int next;
        private Iterator<?> rows;
        private long[] deleted;
        private Object current;

        Reader(FilePartition partition) {
            files = partition.files();
            withoutIndex = rowIndex < 0 ? null : projection();
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
            var own = file.otherConstantMetadataColumnValues();
            deleted = own.contains(TableScan.DELETED)
                ? unpacked((byte[]) own.apply(TableScan.DELETED)) : null;
            rows = readers.get((Integer) own.apply(TableScan.SCHEMA)).apply(file);
        }

        @Override
        @SuppressWarnings("unchecked")
        public T get() {
            if (withoutIndex == null) {
                return (T) current;
            }
            withoutIndex.project((InternalRow) current);
            return (T) withoutIndex;
        }

        @Override
        public void close() throws IOException {
            if (rows instanceof Closeable open) {
                open.close();
            }
            rows = null;
        }
    }

    private ProjectingInternalRow projection() {
        StructType kept = new StructType();
        List<Object> positions = new ArrayList<>();
        for (int index = 0; index < columns.length(); index++) {
            if (index != rowIndex) {
                StructField field = columns.apply(index);
                kept = kept.add(field);
                positions.add(index);
            }
        }
        return new ProjectingInternalRow(
            kept, ArraySeq.unsafeWrapArray(positions.toArray()).toIndexedSeq());
    }

    private static long[] unpacked(byte[] content) {
        long[] found = new long[content.length / 8];
        ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer().get(found);
        return found;
    }
}
