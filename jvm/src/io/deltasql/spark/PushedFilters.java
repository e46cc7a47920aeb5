package io.deltasql.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.catalyst.trees.TreePattern;
import org.apache.spark.sql.execution.datasources.DataSourceStrategy$;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.StructType;
import scala.Function1;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Seq$;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * The filters of a query.
 *
 * A filter on partition columns is evaluated here, once for each partition, so Spark does not
 * evaluate it again. Other filters only skip files and row groups.
 */
final class PushedFilters {
    static final PushedFilters NONE =
        new PushedFilters(
        Seq$.MODULE$.<Expression>empty(), new StructType(), new StructType());

    /** All filters that Spark can translate for data sources. */
    final Filter[] translated;
    private final List<Expression> exact = new ArrayList<>();
    private final List<Expression> others = new ArrayList<>();

    /** `columns` are all columns of the table; metadata columns are not among them. */
    PushedFilters(Seq<Expression> given, StructType columns, StructType partitionColumns) {
        List<String> names = Arrays.asList(columns.fieldNames());
        List<Filter> found = new ArrayList<>();
        for (Expression each : CollectionConverters.asJava(given)) {
            var filter = DataSourceStrategy$.MODULE$.translateFilter(each, true);
            boolean isOfTable = CollectionConverters.asJava(each.references().toSeq()).stream()
                .allMatch(column -> names.contains(column.name()));
            if (filter.isDefined() && isOfTable) {
                found.add(filter.get());
            }
            Expression bound = bound(each, partitionColumns);
            if (bound == null) {
                others.add(each);
            } else {
                exact.add(bound);
            }
        }
        translated = found.toArray(new Filter[0]);
    }

    /** Return a filter as an expression over partition values; null if it has other columns. */
    private static Expression bound(Expression filter, StructType partitionColumns) {
        List<String> names = Arrays.asList(partitionColumns.fieldNames());
        List<Attribute> references = CollectionConverters.asJava(filter.references().toSeq());
        boolean isExact = filter.deterministic() && !references.isEmpty()
            && !filter.containsPattern(TreePattern.PYTHON_UDF())
            && references.stream().allMatch(each -> names.contains(each.name()));
        return isExact ? filter.transform(new Binding(names)) : null;
    }

    /** Replaces columns by their positions. */
    private static final class Binding extends AbstractPartialFunction<Expression, Expression> {
        private final List<String> names;

        Binding(List<String> names) {
            this.names = names;
        }

        @Override
        public boolean isDefinedAt(Expression node) {
            return node instanceof Attribute;
        }

        @Override
        @SuppressWarnings("unchecked")
        public <A extends Expression, B> B applyOrElse(A node, Function1<A, B> otherwise) {
            return node instanceof Attribute column
                ? (B) new BoundReference(names.indexOf(column.name()), column.dataType(), true)
                : otherwise.apply(node);
        }
    }

    /** Return the filters that Spark must evaluate for each row. */
    Seq<Expression> others() {
        return CollectionConverters.asScala(others).toList();
    }

    /** Return the filters on partition columns; equal filters of two scans are equal objects. */
    List<Expression> exact() {
        return exact;
    }

    /** Return whether all filters on partition columns are true for the values of a partition. */
    boolean match(InternalRow partition) {
        for (Expression each : exact) {
            if (!Predicate.createInterpreted(each).eval(partition)) {
                return false;
            }
        }
        return true;
    }
}
