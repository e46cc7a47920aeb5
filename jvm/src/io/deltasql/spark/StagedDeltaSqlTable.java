package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A table that is created or replaced when its rows are complete, in one commit. */
final class StagedDeltaSqlTable extends DeltaSqlTable implements StagedTable {
    private final JsonNode begun;
    private Map<String, Object> commit;

    StagedDeltaSqlTable(DeltaSqlCatalog catalog, Identifier ident, JsonNode begun) {
        super(catalog, ident, begun, true);
        this.begun = begun;
        this.commit = new HashMap<>(DeltaSqlCatalog.named(ident));
        this.commit.put("txn_id", begun.get("txn_id").asText());
    }

    @Override
    JsonNode beginWrite(Map<String, Object> overwrite) {
        return begun;
    }

    /** Keep the files until `commitStagedChanges`; all rows of a new table replace none. */
    @Override
    void commitWrite(Map<String, Object> body) {
        commit = new HashMap<>(body);
        commit.remove("overwrite");
    }

    /** Return no metrics; two interfaces have a default for this method. */
    @Override
    public CustomTaskMetric[] reportDriverMetrics() {
        return new CustomTaskMetric[0];
    }

    @Override
    public void commitStagedChanges() {
        catalog.service().askAgain("write_commit", commit);
        catalog.endStatement();
    }

    @Override
    public void abortStagedChanges() {
        catalog.service().call("write_abort", Map.of("txn_id", begun.get("txn_id").asText()));
    }
}
