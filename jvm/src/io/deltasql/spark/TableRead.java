package io.deltasql.spark;

import org.apache.spark.sql.sources.Filter;

/** A read of a table in a statement, which the commit of the statement checks for conflicts. */
interface TableRead {
    /** Return whether the latest version of this table is read. */
    boolean isOf(DeltaSqlTable table);

    /** Return the filters; the statement does not depend on rows for which one is not true. */
    Filter[] filters();
}
