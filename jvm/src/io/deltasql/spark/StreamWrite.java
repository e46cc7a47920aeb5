package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** One micro-batch of a stream into a table, which the service commits at most once. */
final class StreamWrite implements StreamingWrite {
    private final DeltaSqlTable table;
    private final Service service;
    private final LogicalWriteInfo info;
    private final Map<String, Object> overwrite;
    private String txnId;
    private RowChecks checks;
    private RowNumbers numbers;

    /** `overwrite` is empty if the batch replaces all rows, and null if it is appended. */
    StreamWrite(DeltaSqlTable table, LogicalWriteInfo info, Map<String, Object> overwrite) {
        this.table = table;
        this.service = table.catalog.service().outside(); // a stream is not part of a transaction
        this.info = info;
        this.overwrite = overwrite;
    }

    /** Begin a write at the latest version, because earlier batches have changed the table. */
    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo physical) {
        Map<String, Object> body = table.request();
        body.remove("version");
        body.remove("known");
        body.put("checks_rules", true);
        body.put("reserves_numbers", true);
        body.put("stream", Map.of(
            "schema", info.schema().json(), "options", info.options().asCaseSensitiveMap()));
        JsonNode begun = service.call("write_begin", body);
        txnId = begun.get("txn_id").asText();
        StructType columns = (StructType) DataType.fromJson(begun.get("schema").asText());
        StructType stored = (StructType) DataType.fromJson(begun.get("stored_schema").asText());
        checks = RowChecks.of(begun, columns, false);
        numbers = RowNumbers.of(service, begun, columns);
        return new StreamWriterFactory(
            TableWrite.writers(
                table, begun, begun.get("folder").asText(), columns, stored, checks, numbers),
            table.name(),
            columns,
            arranged(begun, columns));
    }

    /** Return the columns of the table for the rows of the stream, which can lack some. */
    private RowProjection arranged(JsonNode begun, StructType columns) {
        StructType given = new StructType(); // with other names, which are certainly different
        for (StructField field : info.schema().fields()) {
            given = given.add("c" + given.length(), field.dataType());
        }
        List<String> found = new ArrayList<>();
        for (int index = 0; index < columns.length(); index++) {
            JsonNode position = begun.get("positions").get(index);
            JsonNode missing = begun.path("defaults").path(index);
            String value = !position.isNull() ? "c" + position.asInt()
                : missing.isTextual() ? missing.asText()
                : "CAST(NULL AS " + columns.apply(index).dataType().sql() + ")";
            found.add(value + " AS c" + (given.length() + index));
        }
        return RowProjection.of(TableScan.session(), given, found);
    }

    @Override
    public void commit(long epochId, WriterCommitMessage[] messages) {
        Map<String, Object> body = new HashMap<>(DeltaSqlCatalog.named(table.ident));
        body.put("txn_id", txnId);
        body.put("files", TableWrite.described(messages, checks));
        body.put("stream", Map.of("query_id", info.queryId(), "batch", epochId));
        if (overwrite != null) {
            body.put("overwrite", overwrite);
        }
        service.askAgain("write_commit", body);
        RowNumbers.end(numbers);
    }

    @Override
    public void abort(long epochId, WriterCommitMessage[] messages) {
        RowNumbers.end(numbers);
        if (txnId != null) {
            service.call("write_abort", Map.of("txn_id", txnId));
        }
    }
}
