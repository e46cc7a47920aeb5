package io.deltasql.spark;

import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import scala.Option;
import scala.runtime.BoxedUnit;

/** Looks at the statement that runs in this thread. */
final class Statements {
    private static final Pattern SCHEMA_EVOLUTION = Pattern.compile(
        "^\\s*(WITH\\b.*)?\\bMERGE\\s+WITH\\s+SCHEMA\\s+EVOLUTION\\b",
        Pattern.CASE_INSENSITIVE | Pattern.DOTALL);

    private Statements() {}

    private static QueryExecution running() {
        String id = TableScan.session().sparkContext()
            .getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
        return id == null ? null : SQLExecution.getQueryExecution(Long.parseLong(id));
    }

    /** Return the text of the SQL statement; null for a DataFrame. */
    static String text() {
        QueryExecution running = running();
        Option<String> found = running == null
            ? Option.empty() : running.logical().origin().sqlText();
        return found.isDefined() ? found.get() : null;
    }

    /** Throw for a MERGE WITH SCHEMA EVOLUTION that Spark would run without adding columns. */
    static void refuseSchemaEvolution(DeltaSqlTable table) {
        String text = table.addsColumns() ? null : text();
        if (text != null && SCHEMA_EVOLUTION.matcher(text).find()) {
            throw new UnsupportedOperationException(
                "MERGE WITH SCHEMA EVOLUTION needs Spark 4.2 and the catalog class "
                    + "io.deltasql.spark.TransactionalDeltaSqlCatalog, which catalog_options "
                    + "configures: add the columns with ALTER TABLE … ADD COLUMNS, or use "
                    + "deltasql.spark.sql.");
        }
    }

    /** Return the filters of all scans of a table in the statement, as they are sent. */
    static Set<Map<String, Object>> reads(DeltaSqlTable table) {
        Set<Map<String, Object>> found = new LinkedHashSet<>();
        QueryExecution running = running();
        if (running != null) {
            running.optimizedPlan().foreachWithSubqueries(each -> {
                if (each instanceof DataSourceV2ScanRelation relation
                        && relation.scan() instanceof TableRead scan && scan.isOf(table)) {
                    found.add(Map.of("filters", Filters.json(scan.filters())));
                }
                return BoxedUnit.UNIT;
            });
        }
        return found;
    }
}
