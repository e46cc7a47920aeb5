package io.deltasql.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.NamedReference;
import scala.Product;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Changes of a table in the classes of delta-spark.
 *
 * In a session with its SQL extension, delta-spark parses some ALTER TABLE statements, also about
 * tables of other catalogs. Its classes are Scala case classes, which need not be loaded to be read.
 */
final class DeltaChanges {
    private DeltaChanges() {}

    /** Return a change as the service takes it; the service refuses one that it does not know. */
    static Map<String, Object> described(Product change) {
        return switch (change.productPrefix()) {
            case "AddConstraint" -> CheckConstraints.added(
                change.productElement(0), change.productElement(1));
            case "DropConstraint" -> CheckConstraints.dropped(
                change.productElement(0), change.productElement(1));
            case "ClusterBy" -> Map.of(
                "change", "cluster by", "columns", names((Seq<?>) change.productElement(0)));
            default -> Map.of("change", change.productPrefix());
        };
    }

    private static List<String> names(Seq<?> columns) {
        List<String> found = new ArrayList<>();
        for (Object each : CollectionConverters.asJava(columns)) {
            found.add(String.join(".", ((NamedReference) each).fieldNames()));
        }
        return found;
    }
}
