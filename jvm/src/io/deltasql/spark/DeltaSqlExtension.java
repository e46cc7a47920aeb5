package io.deltasql.spark;

import org.apache.spark.sql.SparkSessionExtensions;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * Adds Delta's own statements to Spark SQL, for the tables of deltasql's catalogs.
 *
 * `spark.sql.extensions = io.deltasql.spark.DeltaSqlExtension`. If the extension of delta-spark is
 * configured too, this one must be the last, so that it sees each statement first.
 */
public final class DeltaSqlExtension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
    @Override
    public BoxedUnit apply(SparkSessionExtensions extensions) {
        SparkRelease.check("The SQL extension of deltasql");
        extensions.injectParser(StatementParser::around);
        return BoxedUnit.UNIT;
    }
}
