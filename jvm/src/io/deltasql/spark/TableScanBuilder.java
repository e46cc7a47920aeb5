package io.deltasql.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;

/** Collects the columns and filters of a query. */
class TableScanBuilder
        implements ScanBuilder, SupportsPushDownRequiredColumns, SupportsPushDownFilters {
    private final DeltaSqlTable table;
    private StructType columns;
    private Filter[] filters = new Filter[0];

    TableScanBuilder(DeltaSqlTable table) {
        this.table = table;
        this.columns = table.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = required;
    }

    /** Use the filters to skip files and row groups; Spark evaluates all of them again. */
    @Override
    public Filter[] pushFilters(Filter[] given) {
        filters = given;
        return given;
    }

    @Override
    public Filter[] pushedFilters() {
        List<Filter> found = new ArrayList<>();
        for (Filter each : filters) {
            if (Filters.json(each) != null) {
                found.add(each);
            }
        }
        return found.toArray(new Filter[0]);
    }

    @Override
    public TableScan build() {
        return new TableScan(table, columns, filters);
    }
}
