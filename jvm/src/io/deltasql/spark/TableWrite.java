package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.SupportsDynamicOverwrite;
import org.apache.spark.sql.connector.write.SupportsOverwrite;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.sources.AlwaysTrue;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** An append or overwrite: executors write files, and the service commits all of them or none. */
final class TableWrite implements WriteBuilder, SupportsOverwrite, SupportsTruncate,
        SupportsDynamicOverwrite, RequiresDistributionAndOrdering, BatchWrite {
    /** How Delta stores values, whatever the settings of the session are. */
    private static final Map<String, String> SETTINGS = Map.of(
        "spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS",
        "spark.sql.parquet.writeLegacyFormat", "false",
        "spark.sql.parquet.fieldId.write.enabled", "true");

    private final DeltaSqlTable table;
    private final LogicalWriteInfo info;
    private Map<String, Object> overwrite;
    private String txnId;
    private RowChecks checks;
    private RowNumbers numbers;

    TableWrite(DeltaSqlTable table, LogicalWriteInfo info) {
        this.table = table;
        this.info = info;
    }

    @Override
    public Write build() {
        return this;
    }

    @Override
    public BatchWrite toBatch() {
        return this;
    }

    @Override
    public StreamingWrite toStreaming() {
        return new StreamWrite(table, info, overwrite);
    }

    @Override
    public WriteBuilder truncate() {
        overwrite = Map.of();
        return this;
    }

    @Override
    public WriteBuilder overwrite(Filter[] filters) {
        for (Filter filter : filters) {
            if (!(filter instanceof AlwaysTrue) && Filters.json(filter) == null) {
                throw new UnsupportedOperationException(
                    "An overwrite of " + table.name() + " cannot have this condition: " + filter
                        + ". Compare columns with values, or use deltasql.spark.write.");
            }
        }
        overwrite = Map.of("filters", Filters.json(filters));
        return this;
    }

    @Override
    public WriteBuilder overwriteDynamicPartitions() {
        overwrite = Map.of("same_partitions", true);
        return this;
    }

    @Override
    public Distribution requiredDistribution() {
        return Distributions.unspecified();
    }

    /** Sort the rows of a task by partition, because a task writes one file at a time. */
    @Override
    public SortOrder[] requiredOrdering() {
        Set<String> given = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);
        given.addAll(List.of(info.schema().fieldNames())); // a stream can lack columns
        return table.partitionColumns().stream()
            .filter(given::contains)
            .map(DeltaSqlTable::quoted)
            .map(each -> Expressions.sort(Expressions.column(each), SortDirection.ASCENDING))
            .toArray(SortOrder[]::new);
    }

    @Override
    public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        Statements.refuseSchemaEvolution(table);
        JsonNode begun = table.beginWrite(overwrite);
        txnId = begun.get("txn_id").asText();
        checks = RowChecks.of(begun, table.schema(), false);
        numbers = RowNumbers.of(table.catalog.service(), begun, table.schema());
        StructType stored = (StructType) DataType.fromJson(begun.get("stored_schema").asText());
        return writers(
            table, begun, begun.get("folder").asText(), table.schema(), stored, checks,
            numbers);
    }

    /**
     * Return writers of files in a folder; `begun` is the response to `write_begin`. They check the
     * rows and give them numbers, unless `checks` and `numbers` are null.
     */
    static FileWriterFactory writers(
            DeltaSqlTable table, JsonNode begun, String folder, StructType schema,
            StructType stored, RowChecks checks, RowNumbers numbers) {
        SparkSession session = TableScan.session();
        Map<String, String> options = new HashMap<>();
        begun.get("options").fields()
            .forEachRemaining(each -> options.put(each.getKey(), each.getValue().asText()));
        try {
            Configuration conf = session.sessionState().newHadoopConfWithOptions(
                TableScan.scalaMap(options));
            Job job = Job.getInstance(conf);
            OutputWriterFactory factory = new ParquetFileFormat().prepareWrite(
                session, job, TableScan.scalaMap(options), stored);
            SETTINGS.forEach(job.getConfiguration()::set);
            boolean keepsS3 = conf.get("fs.s3.impl") != null;
            return new FileWriterFactory(
                factory,
                new HadoopSettings(job.getConfiguration()),
                TableScan.hadoopUrl(folder, keepsS3),
                schema,
                stored,
                Service.texts(begun.get("partition_columns")),
                Service.texts(begun.get("partition_folders")),
                Long.parseLong(options.getOrDefault("maxRecordsPerFile", "0")),
                checks,
                numbers);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
        Map<String, Object> body = DeltaSqlCatalog.named(table.ident);
        body.put("txn_id", txnId);
        body.put("files", described(messages, checks));
        if (overwrite != null) {
            body.put("overwrite", overwrite);
        }
        Set<Map<String, Object>> reads = Statements.reads(table);
        if (!reads.isEmpty()) {
            body.put("reads", reads);
            body.put("statement", Statements.text());
        }
        table.commitWrite(body);
        RowNumbers.end(numbers);
    }

    /** Return the files of all tasks as `write_commit` takes them; throw if a row is not allowed. */
    static List<Object> described(WriterCommitMessage[] messages, RowChecks checks) {
        List<Object> files = new ArrayList<>();
        List<RowChecks.BrokenRows> broken = new ArrayList<>();
        for (WriterCommitMessage message : messages) {
            if (message instanceof WrittenFiles written) {
                if (written.refused() != null) {
                    throw written.refused();
                }
                if (checks != null) {
                    broken.add(written.broken());
                }
                files.addAll(written.json());
            }
        }
        if (checks != null) {
            checks.reject(broken);
        }
        return files;
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
        RowNumbers.end(numbers);
        table.abortWrite(txnId);
    }

    @Override
    public String description() {
        return table.name();
    }
}
