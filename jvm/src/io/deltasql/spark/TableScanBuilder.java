package io.deltasql.spark;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.internal.connector.SupportsPushDownCatalystFilters;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.collection.immutable.Seq;

/** Collects the columns, filters, limit and aggregation of a query. */
class TableScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns,
        SupportsPushDownCatalystFilters, SupportsPushDownAggregates, SupportsPushDownLimit {
    private final DeltaSqlTable table;
    private final CaseInsensitiveStringMap options;
    private StructType columns;
    private PushedFilters filters = PushedFilters.NONE;
    private Integer limit;
    private AggregateScan aggregate;

    TableScanBuilder(DeltaSqlTable table, CaseInsensitiveStringMap options) {
        this.table = table;
        this.options = options;
        this.columns = table.schema();
    }

    @Override
    public void pruneColumns(StructType required) {
        columns = required;
    }

    /** Return the filters that Spark must evaluate again: all that are not about partitions. */
    @Override
    public Seq<Expression> pushFilters(Seq<Expression> given) {
        filters = new PushedFilters(given, table.schema(), table.partitionSchema());
        return filters.others();
    }

    @Override
    public Predicate[] pushedFilters() {
        return Arrays.stream(filters.translated).filter(each -> Filters.json(each) != null)
            .map(Filter::toV2).toArray(Predicate[]::new);
    }

    /** Answer count, min and max from statistics; Spark calls this only if no filter remains. */
    @Override
    public boolean pushAggregation(Aggregation aggregation) {
        aggregate = AggregateScan.of(table, filters, aggregation);
        return aggregate != null;
    }

    /** List only the first files; Spark calls this only if no filter remains. */
    @Override
    public boolean pushLimit(int most) {
        if (!filters.exact().isEmpty()) {
            return false; // the service does not know which files remain
        }
        limit = most;
        return true;
    }

    @Override
    public Scan build() {
        return aggregate != null ? aggregate : scan();
    }

    /** Return the scan of the files. */
    TableScan scan() {
        return new TableScan(table, columns, filters, limit).with(options);
    }
}
