package io.deltasql.spark;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructType;

/**
 * Writes the rows of a stream to files, with the columns of the table.
 *
 * Spark neither arranges the columns of a stream nor checks NOT NULL, as it does for other writes.
 */
final class StreamWriterFactory implements StreamingDataWriterFactory {
    private final FileWriterFactory files;
    private final String table;
    private final StructType columns;
    private final RowProjection arranged;

    /** `arranged` computes the columns of the table from the rows of the stream. */
    StreamWriterFactory(
            FileWriterFactory files, String table, StructType columns, RowProjection arranged) {
        this.files = files;
        this.table = table;
        this.columns = columns;
        this.arranged = arranged;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partitionId, long taskId, long epochId) {
        return new StreamWriter(
            files.createWriter(partitionId, taskId), arranged.start(partitionId));
    }

    private final class StreamWriter implements DataWriter<InternalRow> {
        private final DataWriter<InternalRow> writer;
        private final RowProjection.Evaluation arranged;

        StreamWriter(DataWriter<InternalRow> writer, RowProjection.Evaluation arranged) {
            this.writer = writer;
            this.arranged = arranged;
        }

        @Override
        public void write(InternalRow given) throws IOException {
            InternalRow row = arranged.of(given);
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
