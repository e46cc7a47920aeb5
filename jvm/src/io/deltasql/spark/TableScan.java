package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import deltasql.SnapshotFiles;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.paths.SparkPath;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** The files of one version of a table that can match the filters, read by Spark's Parquet reader. */
final class TableScan
        implements Scan, Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering {
    /** Keys of a PartitionedFile's own values: the number of its schema, and its deleted rows. */
    static final String SCHEMA = "deltasql.schema";
    static final String DELETED = "deltasql.deleted";

    /** The column that Spark's Parquet reader fills with the position of each row in its file. */
    private static final StructField ROW_INDEX = new StructField(
        ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType, true,
        Metadata.empty());

    /** Options that make the result independent of the session's settings. */
    private static final Map<String, String> OPTIONS = Map.of(
        "mergeSchema", "false",
        "datetimeRebaseMode", "CORRECTED",
        "int96RebaseMode", "CORRECTED");

    private final DeltaSqlTable table;
    private final StructType columns;
    private final PushedFilters filters;
    private final Integer limit;
    private final StructType data;
    private final StructType partitions;
    private List<JsonNode> plan;
    private Set<String> matching;

    /** `limit` is the number of rows that the query needs, or null. */
    TableScan(DeltaSqlTable table, StructType columns, PushedFilters filters, Integer limit) {
        this.table = table;
        this.columns = columns;
        this.filters = filters;
        this.limit = limit;
        StructType data = new StructType();
        StructType partitions = new StructType();
        for (StructField field : columns.fields()) {
            if (table.partitionColumns().contains(field.name())) {
                partitions = partitions.add(field);
            } else {
                data = data.add(field);
            }
        }
        this.data = data;
        this.partitions = partitions;
    }

    @Override
    public StructType readSchema() {
        return columns;
    }

    @Override
    public String description() {
        return table.name() + " version " + table.version + ", filters: "
            + Arrays.toString(filters.translated);
    }

    @Override
    public Batch toBatch() {
        return this;
    }

    @Override
    public Statistics estimateStatistics() {
        JsonNode totals = plan().get(0);
        // As Spark does for files: the share of the columns that the query reads.
        double share = (8.0 + columns.defaultSize()) / (8.0 + table.schema().defaultSize());
        long bytes = (long) (totals.get("bytes").asLong() * Math.min(1, share));
        return new Statistics() {
            @Override
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(bytes);
            }

            @Override
            public OptionalLong numRows() {
                return totals.hasNonNull("rows")
                    ? OptionalLong.of(totals.get("rows").asLong()) : OptionalLong.empty();
            }
        };
    }

    @Override
    public NamedReference[] filterAttributes() {
        return RuntimeFilters.columns(columns).stream()
            .map(each -> Expressions.column(DeltaSqlTable.quoted(each)))
            .toArray(NamedReference[]::new);
    }

    /** Skip files by the join keys that Spark found while the query runs. */
    @Override
    public void filter(Predicate[] predicates) {
        List<Map<String, Object>> found = RuntimeFilters.json(predicates);
        if (found.isEmpty()) {
            matching = RuntimeFilters.matchNothing(predicates) ? Set.of() : null;
            return;
        }
        found.addAll(Filters.json(filters.translated));
        // Spark has the readers of the files in `plan` already, so only remove files from it.
        Set<String> urls = new HashSet<>();
        for (JsonNode line : files(found)) {
            line.path("files").forEach(file -> urls.add(file.get(0).asText()));
        }
        matching = urls;
    }

    /** Ask the service for the files, once. */
    private synchronized List<JsonNode> plan() {
        if (plan == null) {
            plan = files(Filters.json(filters.translated));
        }
        return plan;
    }

    private List<JsonNode> files(List<Map<String, Object>> wanted) {
        Map<String, Object> body = table.request();
        body.put("filters", wanted);
        if (limit != null) {
            body.put("limit", limit);
        }
        return table.catalog.service().lines("scan", body);
    }

    /** Return for each partition of the plan whether the filters on partition columns are true. */
    private boolean[] matchingPartitions() {
        InternalRow[] values = partitionValues(
            plan().get(0).get("partitions"), table.partitionSchema(), table.partitionColumns());
        boolean[] found = new boolean[values.length];
        for (int index = 0; index < found.length; index++) {
            found[index] = filters.match(values[index]);
        }
        return found;
    }

    @Override
    public InputPartition[] planInputPartitions() {
        SparkSession session = session();
        boolean keepsS3 = session.sessionState().newHadoopConf().get("fs.s3.impl") != null;
        InternalRow[] values = partitionValues(
            plan().get(0).get("partitions"), partitions, table.partitionColumns());
        boolean[] isMatching = matchingPartitions();
        long total = plan().get(0).get("bytes").asLong();
        long largest = FilePartition.maxSplitBytes(session, () -> total);
        List<PartitionedFile> found = new ArrayList<>();
        for (JsonNode line : plan()) {
            for (JsonNode file : line.path("files")) {
                boolean isSkipped = matching != null && !matching.contains(file.get(0).asText());
                if (isSkipped || !isMatching[file.get(3).asInt()]) {
                    continue;
                }
                Map<String, Object> own = new HashMap<>();
                own.put(SCHEMA, line.get("schema").asInt());
                if (file.has(4)) {
                    own.put(DELETED, Base64.getDecoder().decode(file.get(4).asText()));
                }
                SparkPath path = SparkPath.fromUrlString(hadoopUrl(file.get(0).asText(), keepsS3));
                long size = file.get(1).asLong();
                for (long start = 0; start < size; start += largest) {
                    found.add(new PartitionedFile(
                        values[file.get(3).asInt()], path, start, Math.min(largest, size - start),
                        new String[0], file.get(2).asLong(), size, scalaMap(own)));
                }
            }
        }
        found.sort((one, other) -> Long.compare(other.length(), one.length()));
        return CollectionConverters.asJava(FilePartition.getFilePartitions(
            session, CollectionConverters.asScala(found).toSeq(),
            largest)).toArray(new InputPartition[0]);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        boolean hasDeleted = plan().get(0).get("has_deleted_rows").asBoolean();
        boolean isMapped = plan().get(0).get("has_column_mapping").asBoolean();
        SparkSession session = session();
        ParquetFileFormat format = new ParquetFileFormat();
        StructType read = hasDeleted ? data.add(ROW_INDEX) : data;
        // Spark's reader returns the columns of the files first, then the partition columns.
        StructType returned = joined(read, partitions);
        boolean isColumnar = !hasDeleted && format.supportBatch(session, returned);
        Map<String, String> options = new HashMap<>(OPTIONS);
        options.put("returning_batch", String.valueOf(isColumnar));
        Configuration conf = session.sessionState().newHadoopConf();
        StructType stored = new StructType();
        for (StructField field : table.schema().fields()) {
            stored = table.partitionColumns().contains(field.name()) ? stored : stored.add(field);
        }
        List<Function1<PartitionedFile, Iterator<InternalRow>>> readers = new ArrayList<>();
        for (JsonNode json : plan().get(0).get("schemas")) {
            StructType inFiles = (StructType) DataType.fromJson(json.asText());
            StructType wanted = (StructType) renamed(data, stored, inFiles);
            readers.add(format.buildReaderWithPartitionValues(
                session,
                inFiles,
                partitions,
                hasDeleted ? wanted.add(ROW_INDEX) : wanted,
                // Filters have logical names, so they cannot be used where names are mapped.
                CollectionConverters.asScala(isMapped ? List.<Filter>of() : List.of(filters.translated)).toSeq(),
                scalaMap(options),
                new Configuration(conf)));
        }
        int[] order = Arrays.stream(columns.fieldNames()).mapToInt(returned::fieldIndex).toArray();
        return new FileReaders(readers, isColumnar, hasDeleted ? data.length() : -1, columns, order);
    }

    /** Return columns of `from`, which a query may have pruned, with the names that `to` has. */
    private static DataType renamed(DataType wanted, DataType from, DataType to) {
        if (wanted instanceof StructType struct) {
            StructType known = (StructType) from;
            StructType names = (StructType) to;
            StructField[] found = new StructField[struct.length()];
            for (int index = 0; index < found.length; index++) {
                StructField field = struct.apply(index);
                int position = known.fieldIndex(field.name());
                StructField name = names.apply(position);
                found[index] = new StructField(
                    name.name(),
                    renamed(field.dataType(), known.apply(position).dataType(), name.dataType()),
                    true, name.metadata());
            }
            return new StructType(found);
        }
        if (wanted instanceof ArrayType array) {
            return new ArrayType(
                renamed(array.elementType(), ((ArrayType) from).elementType(),
                    ((ArrayType) to).elementType()), array.containsNull());
        }
        if (wanted instanceof MapType map) {
            MapType known = (MapType) from;
            MapType names = (MapType) to;
            return new MapType(
                renamed(map.keyType(), known.keyType(), names.keyType()),
                renamed(map.valueType(), known.valueType(), names.valueType()),
                map.valueContainsNull());
        }
        return wanted;
    }

    /** Return the values of each partition, of some of the partition columns. */
    static InternalRow[] partitionValues(
            JsonNode given, StructType wanted, List<String> partitionColumns) {
        List<InternalRow> found = new ArrayList<>();
        for (JsonNode each : given) {
            List<String> texts = Service.texts(each);
            Object[] values = new Object[wanted.length()];
            for (int index = 0; index < values.length; index++) {
                StructField field = wanted.apply(index);
                String text = texts.get(partitionColumns.indexOf(field.name()));
                values[index] = text == null ? null : SnapshotFiles.typed(
                    text.getBytes(StandardCharsets.UTF_8), field.dataType());
            }
            found.add(new GenericInternalRow(values));
        }
        return found.toArray(new InternalRow[0]);
    }

    /** Return a URL with the scheme of Hadoop's S3 client, unless the session has another one. */
    static String hadoopUrl(String url, boolean keepsS3) {
        return url.startsWith("s3://") && !keepsS3 ? "s3a" + url.substring(2) : url;
    }

    static SparkSession session() {
        return (SparkSession) SparkSession.active();
    }

    private static StructType joined(StructType one, StructType other) {
        for (StructField field : other.fields()) {
            one = one.add(field);
        }
        return one;
    }

    static <T> scala.collection.immutable.Map<String, T> scalaMap(Map<String, T> given) {
        return scala.collection.immutable.Map.from(CollectionConverters.asScala(given));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof TableScan scan && scan.table.id.equals(table.id)
            && scan.table.version == table.version && scan.readSchema().equals(readSchema())
            && Arrays.equals(scan.filters.translated, filters.translated)
            && scan.filters.exact().equals(filters.exact()) && Objects.equals(scan.limit, limit);
    }

    @Override
    public int hashCode() {
        return table.id.hashCode() + Arrays.hashCode(filters.translated);
    }
}
