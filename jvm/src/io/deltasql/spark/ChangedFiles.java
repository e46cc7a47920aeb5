package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import deltasql.SnapshotFiles;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Files that versions of a table changed.
 *
 * The files are in groups, because versions can have different partition columns. The files of a
 * version whose rows cancel out are read by one task, with all columns.
 */
final class ChangedFiles {
    /** The key under which a PartitionedFile has the number of its group. */
    static final String GROUP = "deltasql.group";

    private final List<JsonNode> lines;
    private final StructType schema;
    private final StructType columns;
    private final List<Group> groups = new ArrayList<>();
    private final boolean hasDeleted;
    private final boolean cancelsOut;

    /** `lines` is the response of the service. `schema` has all columns that can be asked for. */
    ChangedFiles(List<JsonNode> lines, StructType schema, StructType columns) {
        this.lines = lines;
        JsonNode head = lines.get(0);
        this.schema = schema;
        this.columns = columns;
        hasDeleted = head.get("has_deleted_rows").asBoolean();
        boolean cancels = false;
        for (int number = 0; number < head.get("schemas").size(); number++) {
            boolean isWhole = !head.get("cancel_out").get(number).isNull();
            cancels |= isWhole;
            groups.add(new Group(
                (StructType) DataType.fromJson(head.get("schemas").get(number).asText()),
                Service.texts(head.get("partition_columns").get(number)),
                isWhole ? schema : columns));
        }
        cancelsOut = cancels;
    }

    /** Return the files in tasks, each with files of one group. */
    InputPartition[] partitions() {
        SparkSession session = TableScan.session();
        JsonNode head = lines.get(0);
        boolean keepsS3 = session.sessionState().newHadoopConf().get("fs.s3.impl") != null;
        long total = head.get("bytes").asLong();
        long largest = FilePartition.maxSplitBytes(session, () -> total);
        List<InputPartition> found = new ArrayList<>();
        Map<Long, List<FilePartition>> cancelling = new HashMap<>();
        for (JsonNode line : lines) {
            List<PartitionedFile> files = new ArrayList<>();
            for (JsonNode file : line.path("files")) {
                int group = line.get("schema").asInt();
                InternalRow values = groups.get(group).values(
                    Service.texts(head.get("partitions").get(file.get(3).asInt())));
                Map<String, Object> own = new HashMap<>();
                own.put(TableScan.SCHEMA, 0);
                own.put(GROUP, group);
                if (file.has(4)) {
                    own.put(TableScan.DELETED, Base64.getDecoder().decode(file.get(4).asText()));
                }
                SparkPath path = SparkPath.fromUrlString(
                    TableScan.hadoopUrl(file.get(0).asText(), keepsS3));
                long size = file.get(1).asLong();
                for (long start = 0; start < size; start += largest) {
                    files.add(new PartitionedFile(
                        values, path, start, Math.min(largest, size - start), new String[0],
                        file.get(2).asLong(), size, TableScan.scalaMap(own)));
                }
            }
            JsonNode version = head.get("cancel_out").path(line.path("schema").asInt(-1));
            if (version.isNumber()) {
                cancelling.computeIfAbsent(version.asLong(), each -> new ArrayList<>())
                    .add(new FilePartition(0, files.toArray(new PartitionedFile[0])));
                continue;
            }
            files.sort((one, other) -> Long.compare(other.length(), one.length()));
            found.addAll(CollectionConverters.asJava(FilePartition.getFilePartitions(
                session, CollectionConverters.asScala(files).toSeq(), largest)));
        }
        cancelling.values().forEach(each -> found.add(new CancellingPartition(each)));
        return found.toArray(new InputPartition[0]);
    }

    PartitionReaderFactory readers() {
        SparkSession session = TableScan.session();
        // Spark accepts tasks that return batches of rows only if all tasks do.
        boolean isColumnar = !hasDeleted && !cancelsOut && groups.stream().allMatch(
            each -> new ParquetFileFormat().supportBatch(session, each.returned));
        List<FileReaders> found = new ArrayList<>();
        for (Group each : groups) {
            found.add(each.readers(session, isColumnar));
        }
        return new GroupReaders(found, isColumnar, schema, columns);
    }

    /** Files with the same columns in the file and the same partition columns. */
    private final class Group {
        private final List<String> partitionColumns;
        private final StructType columns;
        private final StructType inFiles;
        private final StructType stored;
        private final StructType data;
        private final StructType partitions;
        private final StructType returned;

        Group(StructType inFiles, List<String> partitionColumns, StructType columns) {
            this.inFiles = inFiles;
            this.partitionColumns = partitionColumns;
            this.columns = columns;
            stored = only(schema, false);
            data = only(columns, false);
            partitions = only(columns, true);
            returned = TableScan.joined(hasDeleted ? data.add(TableScan.ROW_INDEX) : data, partitions);
        }

        private StructType only(StructType given, boolean isPartition) {
            return new StructType(Arrays.stream(given.fields())
                .filter(each -> partitionColumns.contains(each.name()) == isPartition)
                .toArray(StructField[]::new));
        }

        /** Return the values of the partition columns that the query needs. */
        InternalRow values(List<String> texts) {
            Object[] values = new Object[partitions.length()];
            for (int index = 0; index < values.length; index++) {
                StructField field = partitions.apply(index);
                String text = texts.get(partitionColumns.indexOf(field.name()));
                values[index] = text == null ? null : SnapshotFiles.typed(
                    text.getBytes(StandardCharsets.UTF_8), field.dataType());
            }
            return new GenericInternalRow(values);
        }

        FileReaders readers(SparkSession session, boolean isColumnar) {
            Map<String, String> options = new HashMap<>(TableScan.OPTIONS);
            options.put("returning_batch", String.valueOf(isColumnar));
            StructType wanted = (StructType) TableScan.renamed(data, stored, inFiles);
            var reader = new ParquetFileFormat().buildReaderWithPartitionValues(
                session,
                inFiles,
                partitions,
                hasDeleted ? wanted.add(TableScan.ROW_INDEX) : wanted,
                CollectionConverters.asScala(List.<Filter>of()).toSeq(),
                TableScan.scalaMap(options),
                new Configuration(session.sessionState().newHadoopConf()));
            int[] order = Arrays.stream(columns.fieldNames()).mapToInt(returned::fieldIndex).toArray();
            return new FileReaders(
                List.of(reader), isColumnar, hasDeleted ? data.length() : -1, columns, order, null);
        }
    }
}
