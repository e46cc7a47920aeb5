package io.deltasql.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/**
 * The scan of an UPDATE, DELETE or MERGE.
 *
 * Spark 4.2 and later first find the files with rows that change, by the columns of the condition,
 * and then read the other columns only in these files. A DELETE reads no other columns.
 */
final class RowScan extends TableScan {
    private final RowOperation operation;
    private Set<String> chosen;

    RowScan(RowOperation operation, TableScan scan) {
        super(operation.table, scan.readSchema(), scan.pushed(), null);
        this.operation = operation;
    }

    @Override
    public NamedReference[] filterAttributes() {
        return operation.command() == RowLevelOperation.Command.DELETE
            ? new NamedReference[0] : new NamedReference[] {operation.rowId()[0]};
    }

    /** Keep the files of the predicates `_file IN (…)`. */
    @Override
    public void filter(Predicate[] predicates) {
        for (Predicate each : predicates) {
            Expression[] children = each.children();
            if (each.name().equals("IN") && children[0] instanceof NamedReference column
                    && Arrays.equals(column.fieldNames(), operation.rowId()[0].fieldNames())) {
                Set<String> urls = new HashSet<>();
                for (int index = 1; index < children.length; index++) {
                    urls.add(String.valueOf(((Literal<?>) children[index]).value()));
                }
                chosen = urls;
            }
        }
    }

    @Override
    Map<String, PartitionedFile> files() {
        Map<String, PartitionedFile> found = super.files();
        if (chosen != null) {
            found.keySet().retainAll(chosen);
        }
        return found;
    }
}
