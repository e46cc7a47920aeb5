package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Changelog;
import org.apache.spark.sql.connector.catalog.ChangelogContext;
import org.apache.spark.sql.connector.catalog.ChangelogRange;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The change feed of a table, for `spark.read.changes` and `readStream.changes` (Spark 4.2). */
final class TableChangelog implements Changelog {
    /** Options that are part of the range or of Spark's own processing. */
    private static final Set<String> OF_SPARK = new TreeSet<>(String.CASE_INSENSITIVE_ORDER);

    static {
        OF_SPARK.addAll(Set.of(
            "startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp",
            "startingBoundInclusive", "endingBoundInclusive", "deduplicationMode",
            "computeUpdates"));
    }

    private final DeltaSqlCatalog catalog;
    private final Identifier ident;
    private final JsonNode described;
    private final boolean cancelsOut;
    private final StructType schema;

    private TableChangelog(
            DeltaSqlCatalog catalog, Identifier ident, JsonNode described, boolean cancelsOut) {
        this.catalog = catalog;
        this.ident = ident;
        this.described = described;
        this.cancelsOut = cancelsOut;
        this.schema = (StructType) DataType.fromJson(described.get("schema").asText());
    }

    /** Ask the service for the versions of the range and for the columns of the last one. */
    static Changelog of(
            DeltaSqlCatalog catalog, Identifier ident, ChangelogContext context,
            CaseInsensitiveStringMap options) throws NoSuchTableException {
        if (context.deduplicationMode() == ChangelogContext.DeduplicationMode.NET_CHANGES) {
            throw new IllegalArgumentException(
                "The change feed of " + ident + " has no net changes, because its rows have no ids: "
                    + "leave out deduplicationMode.");
        }
        Map<String, Object> body = DeltaSqlCatalog.named(ident);
        ChangelogRange range = context.range();
        body.put("includes_start", range.startingBoundInclusive());
        body.put("includes_end", range.endingBoundInclusive());
        if (range instanceof ChangelogRange.VersionRange versions) {
            body.put("starting_version", number(versions.startingVersion()));
            versions.endingVersion().ifPresent(each -> body.put("ending_version", number(each)));
        } else if (range instanceof ChangelogRange.TimestampRange timestamps) {
            body.put("starting_timestamp_us", timestamps.startingTimestamp());
            timestamps.endingTimestamp().ifPresent(each -> body.put("ending_timestamp_us", each));
        }
        boolean cancelsOut =
            context.deduplicationMode() != ChangelogContext.DeduplicationMode.NONE;
        return new TableChangelog(
            catalog, ident, catalog.askAbout(ident, "changes", body), cancelsOut);
    }

    private static long number(String version) {
        try {
            return Long.parseLong(version);
        } catch (NumberFormatException error) {
            throw new IllegalArgumentException(
                "A range of changes takes the numbers of versions, not '" + version + "'.");
        }
    }

    @Override
    public String name() {
        return catalog.name() + "." + ident;
    }

    @Override
    public Column[] columns() {
        return Arrays.stream(schema.fields())
            .map(each -> Column.create(each.name(), each.dataType(), each.nullable()))
            .toArray(Column[]::new);
    }

    @Override
    public boolean containsCarryoverRows() {
        return false;
    }

    /** Return false: for true, Spark demands ids of rows, although only net changes need them. */
    @Override
    public boolean containsIntermediateChanges() {
        return false;
    }

    @Override
    public boolean representsUpdateAsDeleteAndInsert() {
        return false;
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        Map<String, Object> request = DeltaSqlCatalog.named(ident);
        request.put("id", described.get("id").asText());
        request.put("version", described.get("version").asLong());
        Map<String, String> kept = new HashMap<>(options.asCaseSensitiveMap());
        kept.keySet().removeIf(OF_SPARK::contains);
        if (described.hasNonNull("first")) {
            request.put("first", described.get("first").asLong());
            kept.put("startingVersion", described.get("first").asText());
        }
        request.put("options", kept);
        request.put("changes", true);
        request.put("cancel_out", cancelsOut);
        return new ChangesScan(name(), catalog.service(), request, schema);
    }
}
