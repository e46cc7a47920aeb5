package io.deltasql.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.JobID;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.Iterator;
import scala.collection.immutable.ArraySeq;

/** Writes rows to files of one folder with Spark's Parquet writer; runs on executors. */
final class FileWriterFactory implements DataWriterFactory {
    private static final String REBASE = "spark.sql.parquet.datetimeRebaseModeInWrite";

    private final OutputWriterFactory factory;
    private final HadoopSettings conf;
    private final String folder;
    private final StructType schema;
    private final StructType stored;
    private final List<String> partitionColumns;
    private final List<String> partitionFolders;
    private final long mostRows;
    private final RowChecks checks;
    private final RowNumbers numbers;

    /** `mostRows` is the maximum rows of a file, or 0. `checks` and `numbers` may be null. */
    FileWriterFactory(
            OutputWriterFactory factory, HadoopSettings conf, String folder,
            StructType schema, StructType stored, List<String> partitionColumns,
            List<String> partitionFolders, long mostRows, RowChecks checks,
            RowNumbers numbers) {
        this.factory = factory;
        this.conf = conf;
        this.folder = folder;
        this.schema = schema;
        this.stored = stored;
        this.partitionColumns = new ArrayList<>(partitionColumns);
        // A JVM without a locale cannot create folders with non-ASCII names, so replace these
        // letters. The service moves the files to the right folder.
        this.partitionFolders = new ArrayList<>();
        partitionFolders.forEach(
            each -> this.partitionFolders.add(each.replaceAll("[^\\x00-\\x7F]", "_")));
        this.mostRows = mostRows;
        this.checks = checks;
        this.numbers = numbers;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partitionId, long taskId) {
        try {
            return new FileWriter(partitionId, taskId);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private final class FileWriter implements DataWriter<InternalRow> {
        private final TaskAttemptContext context;
        private final int[] partitionPositions;
        private final ProjectingInternalRow data;
        private final List<WrittenFiles.WrittenFile> written = new ArrayList<>();
        private final int partitionId;
        private final RowChecks.Task task;
        private final RowNumbers.Task numbering;
        private final PartitionSorter sorter;
        private OutputWriter writer;
        private Object[] partition;
        private long rows;

        FileWriter(int partitionId, long taskId) throws IOException {
            this.partitionId = partitionId;
            TaskID id = new TaskID(new JobID("deltasql", 0), TaskType.MAP, partitionId);
            context = new TaskAttemptContextImpl(
                new Configuration(conf.value()), new TaskAttemptID(id, (int) (taskId & 0xFFFFFF)));
            partitionPositions = partitionColumns.stream().mapToInt(schema::fieldIndex).toArray();
            data = partitionPositions.length == 0 ? null : projection();
            this.task = checks == null ? null : checks.start(partitionId);
            numbering = numbers == null ? null : numbers.start(this::check);
            sorter = checks != null && checks.computesAny(partitionColumns)
                ? new PartitionSorter(schema, partitionPositions) : null;
        }

        private ProjectingInternalRow projection() {
            List<Object> kept = new ArrayList<>();
            for (int index = 0; index < schema.length(); index++) {
                if (!partitionColumns.contains(schema.apply(index).name())) {
                    kept.add(index);
                }
            }
            return new ProjectingInternalRow(
                stored, ArraySeq.unsafeWrapArray(kept.toArray()).toIndexedSeq());
        }

        @Override
        public void write(InternalRow given) throws IOException {
            if (numbering == null) {
                check(given);
            } else {
                numbering.add(given);
            }
        }

        private void check(InternalRow given) throws IOException {
            InternalRow row = task == null ? given : task.checked(given);
            if (row != null && sorter != null) {
                sorter.add(row);
            } else if (row != null) {
                writeNext(row);
            }
        }

        /** Write a row to the open file, or to a new one if the row is of another partition. */
        private void writeNext(InternalRow row) {
            if (writer != null && (mostRows > 0 && rows >= mostRows || !isSamePartition(row))) {
                finish();
            }
            if (writer == null) {
                open(row);
            }
            if (data == null) {
                writer.write(row);
            } else {
                data.project(row);
                writer.write(data);
            }
            rows++;
        }

        private boolean isSamePartition(InternalRow row) {
            for (int index = 0; index < partition.length; index++) {
                if (!Objects.deepEquals(partition[index], value(row, index))) {
                    return false;
                }
            }
            return true;
        }

        private Object value(InternalRow row, int index) {
            int position = partitionPositions[index];
            return row.isNullAt(position)
                ? null : row.get(position, schema.apply(position).dataType());
        }

        private void open(InternalRow row) {
            partition = new Object[partitionPositions.length];
            List<String> texts = new ArrayList<>();
            StringBuilder folders = new StringBuilder();
            for (int index = 0; index < partition.length; index++) {
                Object value = value(row, index);
                // The row's memory is used again for the next row.
                partition[index] = value instanceof UTF8String text ? text.clone() : value;
                texts.add(text(value));
                folders.append(partitionFolders.get(index)).append('=')
                    .append(folder(text(value), partitionPositions[index])).append('/');
            }
            String name = String.format("%spart-%05d-%s%s",
                folders, partitionId, UUID.randomUUID(), factory.getFileExtension(context));
            written.add(new WrittenFiles.WrittenFile(name, texts));
            // Spark reads this setting from the session. Delta stores dates without rebasing.
            SQLConf settings = new SQLConf();
            settings.setConfString(REBASE, "CORRECTED");
            writer = SQLConf.withExistingConf(
                settings, () -> factory.newInstance(path(name), stored, context));
            rows = 0;
        }

        private String text(Object value) {
            if (value == null) {
                return null;
            }
            return value instanceof byte[] bytes
                ? UTF8String.fromBytes(bytes).toString() : value.toString();
        }

        /**
         * Return the folder of a partition value. For types whose values have another form in
         * folder names, the service moves the files.
         */
        private String folder(String text, int position) {
            if (text == null || text.isEmpty()) {
                return "__HIVE_DEFAULT_PARTITION__";
            }
            return schema.apply(position).dataType() instanceof DateType
                ? LocalDate.ofEpochDay(Long.parseLong(text)).toString() : escaped(text);
        }

        private void finish() {
            writer.close();
            writer = null;
        }

        @Override
        public WriterCommitMessage commit() throws IOException {
            if (numbering != null) {
                numbering.flush();
            }
            if (sorter != null) {
                Iterator<InternalRow> rows = sorter.sorted();
                while (rows.hasNext()) {
                    writeNext(rows.next());
                }
            }
            if (writer != null) {
                finish();
            }
            return new WrittenFiles(
                written, task == null ? null : task.broken(),
                numbering == null ? null : numbering.refused());
        }

        @Override
        public void abort() throws IOException {
            if (writer != null) {
                finish();
            }
            delete(written);
        }

        @Override
        public void close() {
            if (sorter != null) {
                sorter.close();
            }
        }
    }

    private String path(String name) {
        return new Path(new Path(java.net.URI.create(folder)), name).toString();
    }

    /** Delete files that a writer has written. */
    void delete(List<WrittenFiles.WrittenFile> files) throws IOException {
        for (WrittenFiles.WrittenFile file : files) {
            Path path = new Path(path(file.name()));
            path.getFileSystem(conf.value()).delete(path, false);
        }
    }

    /** Percent-encode all characters but ASCII letters, digits and `-_.~`. */
    private static String escaped(String text) {
        StringBuilder found = new StringBuilder();
        for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
            char letter = (char) (each & 0xFF);
            boolean isPlain = letter < 128
                && (Character.isLetterOrDigit(letter) || "-_.~".indexOf(letter) >= 0);
            if (isPlain) {
                found.append(letter);
            } else {
                found.append(String.format("%%%02X", (int) letter));
            }
        }
        return found.toString();
    }
}
