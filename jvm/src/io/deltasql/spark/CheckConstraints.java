package io.deltasql.spark;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.constraints.Check;
import org.apache.spark.sql.connector.catalog.constraints.Constraint;

/** The constraints of Spark's SQL, as requests have them. Spark has their classes since 4.1. */
final class CheckConstraints {
    private CheckConstraints() {}

    /** Return the conditions by name. */
    static Map<String, String> conditions(Constraint[] constraints) {
        Map<String, String> found = new LinkedHashMap<>();
        for (Constraint each : constraints) {
            found.put(each.name(), condition(each));
        }
        return found;
    }

    /** Return whether ALTER TABLE adds or drops a constraint; Spark 4.0 lacks these changes. */
    static boolean isChange(TableChange change) {
        String name = change.getClass().getSimpleName();
        return name.equals("AddConstraint") || name.equals("DropConstraint");
    }

    static Map<String, Object> described(TableChange change) {
        if (change instanceof TableChange.AddConstraint add) {
            return added(add.constraint().name(), condition(add.constraint()));
        }
        TableChange.DropConstraint drop = (TableChange.DropConstraint) change;
        return dropped(drop.name(), drop.ifExists());
    }

    static Map<String, Object> added(Object name, Object condition) {
        return Map.of("change", "add constraint", "name", name, "condition", condition);
    }

    static Map<String, Object> dropped(Object name, Object ifExists) {
        return Map.of("change", "drop constraint", "name", name, "if_exists", ifExists);
    }

    private static String condition(Constraint constraint) {
        if (constraint instanceof Check check && check.enforced()) {
            return check.predicateSql();
        }
        throw new UnsupportedOperationException(
            "Tables of deltasql have only CHECK constraints that are enforced, not: "
                + constraint.toDDL() + ".");
    }
}
