package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.UnsafeExternalRowSorter;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.collection.unsafe.sort.PrefixComparators;
import scala.collection.Iterator;
import scala.collection.immutable.Nil$;
import scala.jdk.javaapi.CollectionConverters;

/** Sorts the rows of a task by partition columns whose values are computed in the task. */
final class PartitionSorter {
    private final UnsafeExternalRowSorter sorter;

    /** `positions` are those of the partition columns in the schema. */
    PartitionSorter(StructType schema, int[] positions) throws IOException {
        List<SortOrder> orders = new ArrayList<>();
        for (int position : positions) {
            orders.add(new SortOrder(
                new BoundReference(position, schema.apply(position).dataType(), true),
                Ascending$.MODULE$, NullsFirst$.MODULE$, noExpressions()));
        }
        UnsafeExternalRowSorter.PrefixComputer samePrefix =
            new UnsafeExternalRowSorter.PrefixComputer() {
                private final Prefix prefix = new Prefix();

                @Override
                public Prefix computePrefix(InternalRow row) {
                    return prefix;
                }
            };
        sorter = UnsafeExternalRowSorter.create(
            schema,
            RowOrdering.create(CollectionConverters.asScala(orders).toList(), noExpressions()),
            PrefixComparators.LONG, samePrefix,
            TaskContext.get().taskMemoryManager().pageSizeBytes(), false);
    }

    @SuppressWarnings("unchecked")
    private static <T> scala.collection.immutable.Seq<T> noExpressions() {
        return (scala.collection.immutable.Seq<T>) (Object) Nil$.MODULE$;
    }

    /** Add a row, which is copied. */
    void add(InternalRow row) throws IOException {
        sorter.insertRow((UnsafeRow) row);
    }

    /** Return all rows in order; the memory is free after the last one. */
    Iterator<InternalRow> sorted() throws IOException {
        return sorter.sort();
    }

    void close() {
        sorter.cleanupResources();
    }
}
