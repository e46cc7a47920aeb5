package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.connector.catalog.SupportsDelete;
import org.apache.spark.sql.connector.catalog.SupportsMetadataColumns;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsRowLevelOperations;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperationBuilder;
import org.apache.spark.sql.connector.write.RowLevelOperationInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.sources.AlwaysTrue;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A table at one version: reads see this version, and writes are checked for conflicts with it. */
class DeltaSqlTable implements SupportsRead, SupportsWrite, SupportsDelete,
        SupportsMetadataColumns, SupportsRowLevelOperations {
    final DeltaSqlCatalog catalog;
    final Identifier ident;
    final String id;
    final long version;
    final MetadataColumns metadata;
    final boolean isLatest;
    private final StructType schema;
    private final List<String> partitionColumns;
    private final JsonNode described;

    /** `isLatest` says whether the table was loaded without VERSION or TIMESTAMP AS OF. */
    DeltaSqlTable(DeltaSqlCatalog catalog, Identifier ident, JsonNode described, boolean isLatest) {
        this.catalog = catalog;
        this.ident = ident;
        this.described = described;
        this.isLatest = isLatest;
        this.id = described.path("id").asText();
        this.version = described.path("version").asLong();
        this.schema = (StructType) DataType.fromJson(described.get("schema").asText());
        this.partitionColumns = Service.texts(described.get("partition_columns"));
        this.metadata = MetadataColumns.of(schema, described.path("has_row_ids").asBoolean());
    }

    @Override
    public String name() {
        return catalog.name() + "." + ident;
    }

    @Override
    public StructType schema() {
        return schema;
    }

    List<String> partitionColumns() {
        return partitionColumns;
    }

    StructType partitionSchema() {
        StructType found = new StructType();
        for (String name : partitionColumns) {
            found = found.add(schema.apply(name));
        }
        return found;
    }

    /** Quote a name, because Spark parses the names of columns in expressions. */
    static String quoted(String name) {
        return "`" + name.replace("`", "``") + "`";
    }

    @Override
    public Transform[] partitioning() {
        return partitionColumns.stream().map(each -> Expressions.identity(quoted(each)))
            .toArray(Transform[]::new);
    }

    @Override
    public Map<String, String> properties() {
        Map<String, String> found = new LinkedHashMap<>();
        described.path("properties").fields()
            .forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        found.put(TableCatalog.PROP_PROVIDER, "deltasql");
        if (described.hasNonNull("location")) {
            found.put(TableCatalog.PROP_LOCATION, described.get("location").asText());
        }
        if (described.hasNonNull("comment")) {
            found.put(TableCatalog.PROP_COMMENT, described.get("comment").asText());
        }
        return found;
    }

    /** Return whether a statement WITH SCHEMA EVOLUTION adds columns to this table. */
    boolean addsColumns() {
        return false;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(
            TableCapability.BATCH_READ,
            TableCapability.MICRO_BATCH_READ,
            TableCapability.BATCH_WRITE,
            TableCapability.STREAMING_WRITE,
            TableCapability.TRUNCATE,
            TableCapability.OVERWRITE_BY_FILTER,
            TableCapability.OVERWRITE_DYNAMIC);
    }

    /** Begin a read; the service checks the options of a stream. */
    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new TableScanBuilder(this, options);
    }

    @Override
    public MetadataColumn[] metadataColumns() {
        return metadata.all();
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        rejectOldVersion();
        return new TableWrite(this, info);
    }

    @Override
    public RowLevelOperationBuilder newRowLevelOperationBuilder(RowLevelOperationInfo info) {
        rejectOldVersion();
        return () -> new RowOperation(this, info.command());
    }

    private void rejectOldVersion() {
        if (!isLatest) {
            throw new UnsupportedOperationException(name() + " AS OF a version cannot be written.");
        }
    }

    /** Return whether whole partitions are deleted; for other rows, Spark uses a RowOperation. */
    @Override
    public boolean canDeleteWhere(Filter[] filters) {
        for (Filter filter : filters) {
            boolean isTranslated = filter instanceof AlwaysTrue || Filters.json(filter) != null;
            if (!isTranslated || !partitionColumns.containsAll(List.of(filter.references()))) {
                return false;
            }
        }
        return true;
    }

    @Override
    public void deleteWhere(Filter[] filters) {
        Map<String, Object> body = DeltaSqlCatalog.named(ident);
        body.put("filters", Filters.json(filters));
        catalog.service().call("delete", body);
    }

    @Override
    public boolean truncateTable() {
        deleteWhere(new Filter[0]);
        return true;
    }

    /** Return the part of a request that names this version of this table. */
    Map<String, Object> request() {
        Map<String, Object> found = DeltaSqlCatalog.named(ident);
        found.put("id", id);
        found.put("version", version);
        if (described.hasNonNull("read_in")) {
            found.put("read_in", described.get("read_in").asText());
            found.put("known", Map.of(
                "schema", described.get("schema").asText(),
                "partition_columns", partitionColumns,
                "has_row_ids", metadata.hasRowIds()));
        }
        return found;
    }

    /** Begin a write, and return where and how to write files; `overwrite` is null for an append. */
    JsonNode beginWrite(Map<String, Object> overwrite) {
        Map<String, Object> body = request();
        body.put("checks_rules", true);
        body.put("reserves_numbers", true);
        body.put("overwrite", overwrite);
        return catalog.service().call("write_begin", body);
    }

    /** Commit files of a write that `beginWrite` returned. */
    void commitWrite(Map<String, Object> body) {
        catalog.service().askAgain("write_commit", body);
    }

    /** Delete the files of a write; the id is null if the write did not begin. */
    void abortWrite(String txnId) {
        if (txnId != null) {
            catalog.service().call("write_abort", Map.of("txn_id", txnId));
        }
    }

    @Override
    public String toString() {
        return name();
    }
}
