package io.deltasql.spark;

import org.apache.spark.sql.connector.catalog.TransactionalCatalogPlugin;
import org.apache.spark.sql.connector.catalog.transactions.Transaction;
import org.apache.spark.sql.connector.catalog.transactions.TransactionInfo;

/**
 * The catalog on Spark 4.2 and later: a statement that writes reads all tables at one point in time.
 *
 * Earlier releases do not have the interface, so this class cannot be loaded there.
 */
public final class TransactionalDeltaSqlCatalog extends DeltaSqlCatalog
        implements TransactionalCatalogPlugin {
    @Override
    public Transaction beginTransaction(TransactionInfo info) {
        return new StatementTransaction(this);
    }
}
