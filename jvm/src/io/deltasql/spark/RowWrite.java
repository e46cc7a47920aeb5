package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.broadcast.Broadcast;
import org.apache.spark.sql.connector.distributions.Distribution;
import org.apache.spark.sql.connector.distributions.Distributions;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.SortDirection;
import org.apache.spark.sql.connector.expressions.SortOrder;
import org.apache.spark.sql.connector.write.DeltaBatchWrite;
import org.apache.spark.sql.connector.write.DeltaWrite;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.DeltaWriterFactory;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.RequiresDistributionAndOrdering;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.AtomicType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.reflect.ClassTag$;

/** The write of an UPDATE, DELETE or MERGE: one transaction at the version that Spark read. */
final class RowWrite
        implements DeltaWriteBuilder, DeltaWrite, DeltaBatchWrite, RequiresDistributionAndOrdering {
    private final RowOperation operation;
    private final DeltaSqlTable table;
    private final StructType written;
    private String txnId;
    private RowChecks checks;
    private RowNumbers numbers;

    RowWrite(RowOperation operation, LogicalWriteInfo info) {
        this.operation = operation;
        this.table = operation.table;
        this.written = info.schema();
    }

    @Override
    public DeltaWrite build() {
        return this;
    }

    @Override
    public DeltaBatchWrite toBatch() {
        return this;
    }

    /** Send all changes of a file to one task, which writes the file again. */
    @Override
    public Distribution requiredDistribution() {
        List<Expression> arguments = new ArrayList<>();
        arguments.add(operation.rowId()[0]);
        if (!hasNewRows()) {
            return Distributions.clustered(arguments.toArray(new Expression[0]));
        }
        for (StructField field : table.schema().fields()) {
            // The new rows of a partition belong in one file. Without partition columns, new rows
            // are distributed to all tasks by their values.
            boolean isUsed = table.partitionColumns().isEmpty()
                ? field.dataType() instanceof AtomicType
                : table.partitionColumns().contains(field.name());
            if (isUsed) {
                arguments.add(Expressions.column(DeltaSqlTable.quoted(field.name())));
            }
        }
        return Distributions.clustered(new Expression[] {
            Expressions.apply(WriteTask.NAME, arguments.toArray(new Expression[0]))});
    }

    private boolean hasNewRows() {
        return operation.command() == RowLevelOperation.Command.MERGE && !written.isEmpty();
    }

    /** Use a task for each file: Spark would use fewer, because the changes are few bytes. */
    @Override
    public int requiredNumPartitions() {
        int files = operation.scan() == null ? 1 : operation.scan().countFiles();
        int cores = TableScan.session().sparkContext().defaultParallelism();
        int wanted = hasNewRows() ? Math.max(files, 2 * cores) : files;
        return Math.max(1, Math.min(wanted, SQLConf.get().numShufflePartitions()));
    }

    /** Sort changes by their position; new rows, which have none, by their partition. */
    @Override
    public SortOrder[] requiredOrdering() {
        List<SortOrder> found = new ArrayList<>();
        for (Expression each : operation.rowId()) {
            found.add(Expressions.sort(each, SortDirection.ASCENDING));
        }
        if (hasNewRows()) {
            for (String name : table.partitionColumns()) {
                found.add(Expressions.sort(
                    Expressions.column(DeltaSqlTable.quoted(name)), SortDirection.ASCENDING));
            }
        }
        return found.toArray(new SortOrder[0]);
    }

    @Override
    public DeltaWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
        Statements.refuseSchemaEvolution(table);
        Map<String, Object> body = table.request();
        body.put("command", operation.command().toString());
        body.put("checks_rules", true);
        body.put("reserves_numbers", true);
        body.put("keeps_row_ids", true);
        JsonNode begun = table.catalog.service().call("write_begin", body);
        txnId = begun.get("txn_id").asText();
        checks = RowChecks.of(begun, table.schema(), false);
        numbers = RowNumbers.of(table.catalog.service(), begun, table.schema());
        StructType stored = schema(begun.get("stored_schema"));
        boolean marks = begun.path("marks_rows").asBoolean(false);
        boolean deletes = operation.command() == RowLevelOperation.Command.DELETE;
        StructType rowColumns = schema(begun.get("row_columns"));
        FileWriterFactory files = TableWrite.writers(
            table, begun, begun.get("folder").asText(),
            TableScan.joined(table.schema(), rowColumns), TableScan.joined(stored, rowColumns),
            null, null);
        FileWriterFactory changes = null;
        if (begun.hasNonNull("change_data")) {
            JsonNode given = begun.get("change_data");
            StructField kind = schema(given.get("column")).apply(0);
            changes = TableWrite.writers(
                table, begun, given.get("folder").asText(), table.schema().add(kind),
                stored.add(kind), null, null);
        }
        TableScan scan = operation.scan();
        FileReaders readers = null;
        Map<String, PartitionedFile> old = new HashMap<>();
        if (scan != null) {
            readers = scan.ofAllColumns().readers(false);
            old = scan.ofAllColumns().files();
            old.keySet().retainAll(scan.files().keySet());
        }
        return new RowWriterFactory(
            table.schema(), table.partitionColumns(), files, changes, checks, numbers,
            marks, table.metadata.hasRowIds(), deletes, readers, broadcast(old));
    }

    private static StructType schema(JsonNode json) {
        return (StructType) DataType.fromJson(json.asText());
    }

    private static Broadcast<Map<String, PartitionedFile>> broadcast(
            Map<String, PartitionedFile> files) {
        return TableScan.session().sparkContext().broadcast(
            files, ClassTag$.MODULE$.apply(Map.class));
    }

    @Override
    public void commit(WriterCommitMessage[] messages) {
        if (checks != null) {
            checks.reject(RowChanges.broken(messages));
        }
        RowChanges.throwRefused(messages);
        RowChanges all = RowChanges.sum(messages);
        if (all.isEmpty()) {
            abort(messages);
            return;
        }
        Filter[] filters = operation.scan() == null ? new Filter[0] : operation.scan().filters();
        Map<String, Object> rows = all.json();
        rows.put("filters", Filters.json(filters));
        Map<String, Object> body = DeltaSqlCatalog.named(table.ident);
        body.put("txn_id", txnId);
        body.put("files", all.files().json());
        body.put("rows", rows);
        body.put("reads", Statements.reads(table));
        body.put("statement", Statements.text());
        table.commitWrite(body);
        RowNumbers.end(numbers);
    }

    @Override
    public void abort(WriterCommitMessage[] messages) {
        RowNumbers.end(numbers);
        table.abortWrite(txnId);
    }

    @Override
    public String description() {
        return operation.command() + " of " + table.name();
    }
}
