package io.deltasql.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.LinkedList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;

/** Expressions over the rows of a schema: analysed on the driver, evaluated in tasks. */
final class RowProjection implements Serializable {
    private final List<Step> steps;

    /** One projection; Spark may need several, because it computes common expressions first. */
    private record Step(Seq<Expression> output, Seq<Attribute> input) implements Serializable {}

    private RowProjection(List<Step> steps) {
        this.steps = steps;
    }

    /** Return a copy of the active session with other settings; the user's session is not changed. */
    static SparkSession sessionWith(Map<String, String> settings) {
        SparkSession copy = TableScan.session().cloneSession();
        settings.forEach((name, value) -> {
            if (!value.equals(copy.conf().get(name))) { // Spark warns about some settings
                copy.conf().set(name, value);
            }
        });
        return copy;
    }

    /** Analyse expressions of Spark SQL with the settings of a session. */
    static RowProjection of(SparkSession session, StructType schema, List<String> expressions) {
        // The columns are nullable here: for NOT NULL columns, Spark would remove tests for NULL.
        LogicalPlan plan = session.internalCreateDataFrame(
                session.sparkContext().emptyRDD(ClassTag.apply(InternalRow.class)),
                schema.asNullable(), false)
            .selectExpr(expressions.toArray(new String[0]))
            .queryExecution().optimizedPlan();
        LinkedList<Step> found = new LinkedList<>();
        while (plan instanceof Project project) {
            List<Expression> output = new ArrayList<>();
            CollectionConverters.asJava(project.projectList())
                .forEach(each -> output.add((Expression) each));
            plan = project.child();
            found.addFirst(new Step(CollectionConverters.asScala(output).toList(), plan.output()));
        }
        if (!(plan instanceof LogicalRDD)) {
            throw new DeltaSqlException(
                "Spark cannot evaluate these expressions for each row: " + expressions + ".",
                List.of("UnsupportedFeatureError"));
        }
        return new RowProjection(new ArrayList<>(found));
    }

    /** Return a function for the rows of one task; the rows that it returns are used again. */
    Evaluation start(int partition) {
        List<UnsafeProjection> projections = new ArrayList<>();
        for (Step step : steps) {
            UnsafeProjection projection = UnsafeProjection.create(step.output, step.input);
            projection.initialize(partition);
            projections.add(projection);
        }
        return row -> {
            InternalRow found = row;
            for (UnsafeProjection projection : projections) {
                found = projection.apply(found);
            }
            return (UnsafeRow) found;
        };
    }

    /** Computes the values of the expressions for one row. */
    interface Evaluation {
        UnsafeRow of(InternalRow row);
    }
}
