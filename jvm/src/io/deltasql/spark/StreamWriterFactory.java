package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Writes the rows of a stream to files, with the columns of the table.
 *
 * Spark neither arranges the columns of a stream nor checks NOT NULL, as it does for other writes.
 */
final class StreamWriterFactory implements StreamingDataWriterFactory {
    private final FileWriterFactory files;
    private final String table;
    private final StructType columns;
    private final List<String> positions;

    /** `positions` has the position of each column in the rows of the stream, or null. */
    StreamWriterFactory(
            FileWriterFactory files, String table, StructType columns, List<String> positions) {
        this.files = files;
        this.table = table;
        this.columns = columns;
        this.positions = new ArrayList<>(positions);
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partitionId, long taskId, long epochId) {
        return new StreamWriter(files.createWriter(partitionId, taskId));
    }

    private UnsafeProjection arranged() {
        List<Expression> found = new ArrayList<>();
        for (int index = 0; index < columns.length(); index++) {
            StructField column = columns.apply(index);
            String position = positions.get(index);
            found.add(position == null
                ? Literal.create(null, column.dataType())
                : new BoundReference(Integer.parseInt(position), column.dataType(), true));
        }
        return UnsafeProjection.create(CollectionConverters.asScala(found).toSeq());
    }

    private final class StreamWriter implements DataWriter<InternalRow> {
        private final DataWriter<InternalRow> writer;
        private final UnsafeProjection arranged = arranged();

        StreamWriter(DataWriter<InternalRow> writer) {
            this.writer = writer;
        }

        @Override
        public void write(InternalRow given) throws IOException {
            InternalRow row = arranged.apply(given);
            for (int index = 0; index < columns.length(); index++) {
                if (!columns.apply(index).nullable() && row.isNullAt(index)) {
                    throw new IllegalArgumentException(
                        "A row of the stream into " + table + " has no value for the column "
                            + columns.apply(index).name() + ", which is NOT NULL.");
                }
            }
            writer.write(row);
        }

        @Override
        public WriterCommitMessage commit() throws IOException {
            return writer.commit();
        }

        @Override
        public void abort() throws IOException {
            writer.abort();
        }

        @Override
        public void close() throws IOException {
            writer.close();
        }
    }
}
