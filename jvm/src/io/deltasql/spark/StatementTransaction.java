package io.deltasql.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.CatalogPlugin;
import org.apache.spark.sql.connector.catalog.transactions.Transaction;
import org.apache.spark.sql.connector.read.Scan;

/** The transaction of one statement; between `begin` and `commit`, that of the session. */
final class StatementTransaction implements Transaction {
    private final DeltaSqlCatalog catalog;
    private boolean isOpen;

    StatementTransaction(DeltaSqlCatalog session) {
        if (session.isInTransaction()) {
            catalog = session;
            return;
        }
        String id = session.service().call("call", Map.of("procedure", "begin"))
            .get("transaction").asText();
        catalog = session.forStatement(id, this::commit);
        isOpen = true;
    }

    @Override
    public CatalogPlugin catalog() {
        return catalog;
    }

    @Override
    public void commit() {
        end("commit");
    }

    @Override
    public void abort() {
        end("rollback");
    }

    private void end(String procedure) {
        if (isOpen) {
            isOpen = false;
            catalog.service().askAgain("call", Map.of("procedure", procedure));
        }
    }

    /** Return false, so that Spark does not use cached rows, which may be of another version. */
    @Override
    public boolean registerScans(Scan[] scans) {
        return false;
    }

    @Override
    public void close() {
        abort();
    }
}
