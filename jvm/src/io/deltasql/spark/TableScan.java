package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import deltasql.SnapshotFiles;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
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
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
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
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** The files of one version of a table that can match the filters, read by Spark's Parquet reader. */
class TableScan
        implements Scan, Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering, TableRead {
    /**
     * Keys of a PartitionedFile's own values: the number of its schema, its deleted rows, and the id
     * and the commit version of its first row.
     */
    static final String SCHEMA = "deltasql.schema";
    static final String DELETED = "deltasql.deleted";
    static final String FIRST_ID = "deltasql.first_id";
    static final String FIRST_VERSION = "deltasql.first_version";

    /** The column that Spark's Parquet reader fills with the position of each row in its file. */
    static final StructField ROW_INDEX = new StructField(
        ParquetFileFormat.ROW_INDEX_TEMPORARY_COLUMN_NAME(), DataTypes.LongType, true,
        Metadata.empty());

    /** The column of the file's URL among the constants of a file. */
    private static final StructField FILE = new StructField(
        "deltasql.file", DataTypes.StringType, false, Metadata.empty());

    /** Options that make the result independent of the session's settings. */
    static final Map<String, String> OPTIONS = Map.of(
        "mergeSchema", "false",
        "datetimeRebaseMode", "CORRECTED",
        "int96RebaseMode", "CORRECTED");

    /** Options of a change feed, which would be ignored silently: they cannot add columns. */
    private static final List<String> OF_CHANGES = List.of(
        "readChangeFeed", "readChangeData", "startingVersion", "startingTimestamp", "endingVersion",
        "endingTimestamp");

    private final DeltaSqlTable table;
    private final StructType columns;
    private final PushedFilters filters;
    private final Integer limit;
    private CaseInsensitiveStringMap options = CaseInsensitiveStringMap.empty();
    private final StructType data;
    private final StructType partitions;
    private final boolean hasFile;
    private final boolean hasPosition;
    private final boolean hasIds;
    private List<JsonNode> plan;
    private Set<String> matching;

    /** `limit` is the number of rows that the query needs, or null. */
    TableScan(DeltaSqlTable table, StructType columns, PushedFilters filters, Integer limit) {
        this.table = table;
        this.columns = withWholeIds(table, columns);
        this.filters = filters;
        this.limit = limit;
        StructType data = new StructType();
        StructType partitions = new StructType();
        boolean hasFile = false;
        boolean hasPosition = false;
        boolean hasIds = false;
        for (StructField field : columns.fields()) {
            if (field.name().equals(table.metadata.file.name())) {
                hasFile = true;
            } else if (field.name().equals(table.metadata.position.name())) {
                hasPosition = true;
            } else if (table.metadata.isRowIds(field)) {
                hasIds = true;
            } else if (table.partitionColumns().contains(field.name())) {
                partitions = partitions.add(field);
            } else {
                data = data.add(field);
            }
        }
        this.data = data;
        this.partitions = partitions;
        this.hasFile = hasFile;
        this.hasPosition = hasPosition;
        this.hasIds = hasIds;
    }

    /** Return the columns with both fields of the struct of row ids, which Spark may have pruned. */
    private static StructType withWholeIds(DeltaSqlTable table, StructType columns) {
        return new StructType(Arrays.stream(columns.fields())
            .map(each -> table.metadata.isRowIds(each) ? table.metadata.rowIds() : each)
            .toArray(StructField[]::new));
    }

    /** Set the options of the read. */
    TableScan with(CaseInsensitiveStringMap given) {
        options = given;
        return this;
    }

    /**
     * Return a scan of all columns of the same files, which skips no row groups. If rows have ids,
     * they are the last column.
     */
    TableScan ofAllColumns() {
        StructType all = table.metadata.hasRowIds()
            ? table.schema().add(table.metadata.rowIds()) : table.schema();
        TableScan found = new TableScan(table, all, PushedFilters.NONE, null);
        found.plan = plan();
        return found;
    }

    PushedFilters pushed() {
        return filters;
    }

    @Override
    public Filter[] filters() {
        return filters.translated;
    }

    @Override
    public boolean isOf(DeltaSqlTable other) {
        return table.id.equals(other.id) && table.isLatest;
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
        for (String name : OF_CHANGES) {
            if (options.containsKey(name)) {
                throw new IllegalArgumentException(
                    "A read of " + table.name() + " has no option " + name + ": use "
                        + "spark.read.changes on Spark 4.2 or newer, or "
                        + "spark.read.format('deltasql').");
            }
        }
        return this;
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
        Map<String, Object> request = table.request();
        request.put("options", options.asCaseSensitiveMap());
        return new TableStream(table.catalog.service(), request, table.schema(), columns);
    }

    @Override
    public Statistics estimateStatistics() {
        JsonNode totals = plan().get(0);
        // Estimate the share of the bytes in the columns that the query reads, as Spark does.
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
        return RuntimeFilters.columns(joined(data, partitions)).stream()
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
        for (JsonNode line : listed(found)) {
            line.path("files").forEach(file -> urls.add(file.get(0).asText()));
        }
        matching = urls;
    }

    /** Ask the service for the files, once. */
    private synchronized List<JsonNode> plan() {
        if (plan == null) {
            plan = listed(Filters.json(filters.translated));
        }
        return plan;
    }

    private List<JsonNode> listed(List<Map<String, Object>> wanted) {
        Map<String, Object> body = table.request();
        body.put("filters", wanted);
        body.put("row_ids", table.metadata.hasRowIds());
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

    /** Return the number of files. */
    int countFiles() {
        return plan().get(plan().size() - 1).get("end").asInt();
    }

    /** Return all files, each as one split, by the URL that the column `_file` has. */
    Map<String, PartitionedFile> files() {
        boolean keepsS3 = session().sessionState().newHadoopConf().get("fs.s3.impl") != null;
        InternalRow[] values = partitionValues(
            plan().get(0).get("partitions"), partitions, table.partitionColumns());
        boolean[] isMatching = matchingPartitions();
        Map<String, PartitionedFile> found = new LinkedHashMap<>();
        for (JsonNode line : plan()) {
            var shared = scalaMap(Map.<String, Object>of(SCHEMA, line.path("schema").asInt()));
            for (JsonNode file : line.path("files")) {
                String url = file.get(0).asText();
                boolean isSkipped = matching != null && !matching.contains(url);
                if (isSkipped || !isMatching[file.get(3).asInt()]) {
                    continue;
                }
                var own = file.has(4) ? scalaMap(ownValues(line, file)) : shared;
                SparkPath path = SparkPath.fromUrlString(hadoopUrl(url, keepsS3));
                long size = file.get(1).asLong();
                InternalRow constants = values[file.get(3).asInt()];
                found.put(url, new PartitionedFile(
                    hasFile ? with(constants, url) : constants, path, 0, size,
                    new String[0], file.get(2).asLong(), size, own));
            }
        }
        return found;
    }

    private static Map<String, Object> ownValues(JsonNode line, JsonNode file) {
        Map<String, Object> found = new HashMap<>();
        found.put(SCHEMA, line.get("schema").asInt());
        if (file.hasNonNull(4)) {
            found.put(DELETED, Base64.getDecoder().decode(file.get(4).asText()));
        }
        if (file.hasNonNull(5)) { // a file that the transaction has added has no ids yet
            found.put(FIRST_ID, file.get(5).asLong());
        }
        if (file.hasNonNull(6)) {
            found.put(FIRST_VERSION, file.get(6).asLong());
        }
        return found;
    }

    private static InternalRow with(InternalRow constants, String url) {
        Object[] values = Arrays.copyOf(
            ((GenericInternalRow) constants).values(), constants.numFields() + 1);
        values[constants.numFields()] = UTF8String.fromString(url);
        return new GenericInternalRow(values);
    }

    @Override
    public InputPartition[] planInputPartitions() {
        SparkSession session = session();
        long total = plan().get(0).get("bytes").asLong();
        long largest = FilePartition.maxSplitBytes(session, () -> total);
        List<PartitionedFile> found = new ArrayList<>();
        for (PartitionedFile file : files().values()) {
            if (file.fileSize() > 0 && file.fileSize() <= largest) {
                found.add(file);
                continue;
            }
            for (long start = 0; start < file.fileSize(); start += largest) {
                found.add(new PartitionedFile(
                    file.partitionValues(), file.filePath(), start,
                    Math.min(largest, file.fileSize() - start), new String[0],
                    file.modificationTime(), file.fileSize(),
                    file.otherConstantMetadataColumnValues()));
            }
        }
        found.sort((one, other) -> Long.compare(other.length(), one.length()));
        return CollectionConverters.asJava(FilePartition.getFilePartitions(
            session, CollectionConverters.asScala(found).toSeq(),
            largest)).toArray(new InputPartition[0]);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
        return readers(true);
    }

    /** Return readers of the files; they return batches of rows only if this is allowed. */
    FileReaders readers(boolean mayBeColumnar) {
        boolean hasDeleted = plan().get(0).get("has_deleted_rows").asBoolean();
        boolean isMapped = plan().get(0).get("has_column_mapping").asBoolean();
        SparkSession session = session();
        ParquetFileFormat format = new ParquetFileFormat();
        boolean hasIndex = hasDeleted || hasPosition || hasIds;
        StructType extra = hasIndex ? new StructType().add(ROW_INDEX) : new StructType();
        StructType rowColumns = new StructType();
        for (String name : Service.texts(plan().get(0).get("row_columns"))) {
            rowColumns = rowColumns.add(name, DataTypes.LongType);
        }
        if (hasIds) {
            extra = joined(extra, rowColumns);
        }
        StructType read = joined(data, extra);
        StructType constants = hasFile ? partitions.add(FILE) : partitions;
        // Spark's reader returns the columns of the files first, then the constants of each file.
        StructType returned = joined(read, constants);
        boolean isColumnar =
            mayBeColumnar && !hasDeleted && !hasIds && format.supportBatch(session, returned);
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
                hasIds ? joined(inFiles, rowColumns) : inFiles,
                constants,
                joined(wanted, extra),
                // Filters have logical names, so they cannot be used where names are mapped.
                CollectionConverters.asScala(isMapped ? List.<Filter>of() : List.of(filters.translated)).toSeq(),
                scalaMap(options),
                new Configuration(conf)));
        }
        int[] order = Arrays.stream(columns.fieldNames()).mapToInt(name ->
            name.equals(table.metadata.file.name()) ? returned.length() - 1
                : name.equals(table.metadata.position.name()) ? data.length()
                : hasIds && name.equals(table.metadata.rowIds().name()) ? returned.length()
                : returned.fieldIndex(name)).toArray();
        return new FileReaders(
            readers, isColumnar, hasDeleted ? data.length() : -1, columns, order,
            hasIds ? new RowIds(data.length()) : null);
    }

    /** Return columns of `from`, which a query may have pruned, with the names that `to` has. */
    static DataType renamed(DataType wanted, DataType from, DataType to) {
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

    static StructType joined(StructType one, StructType other) {
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
