package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.ArraySeq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads the inserted and deleted rows of a version, without those that cancel out.
 *
 * A row that was copied to another file is inserted and deleted. If a row occurs several times, the
 * difference of the counts is returned. The rows of the version are held in memory.
 */
final class CancellingReader implements PartitionReader<InternalRow> {
    private static final String CHANGE_TYPE = "_change_type";
    private static final UTF8String INSERT = UTF8String.fromString("insert");
    private static final UTF8String DELETE = UTF8String.fromString("delete");

    private final List<PartitionReader<InternalRow>> readers;
    private final int changeType;
    private final UnsafeProjection others;
    private final ProjectingInternalRow returned;
    private Iterator<Map.Entry<UnsafeRow, long[]>> left;
    private Map.Entry<UnsafeRow, long[]> current;

    /** The rows of `readers` have the columns of `schema`. */
    CancellingReader(
            List<PartitionReader<InternalRow>> readers, StructType schema, StructType columns) {
        this.readers = readers;
        this.changeType = schema.fieldIndex(CHANGE_TYPE);
        List<String> names = new ArrayList<>();
        List<Expression> kept = new ArrayList<>();
        for (int index = 0; index < schema.length(); index++) {
            if (index != changeType) {
                names.add(schema.apply(index).name());
                kept.add(new BoundReference(index, schema.apply(index).dataType(), true));
            }
        }
        others = UnsafeProjection.create(CollectionConverters.asScala(kept).toSeq());
        // A row to return consists of the other columns, followed by the change type.
        names.add(CHANGE_TYPE);
        returned = new ProjectingInternalRow(columns, ArraySeq.unsafeWrapArray(
            (Object[]) Arrays.stream(columns.fieldNames()).map(names::indexOf)
                .toArray(Integer[]::new)).toIndexedSeq());
    }

    @Override
    public boolean next() throws IOException {
        if (left == null) {
            left = counted().entrySet().iterator();
        }
        while (current == null || current.getValue()[0] == 0) {
            if (!left.hasNext()) {
                return false;
            }
            current = left.next();
        }
        boolean isInsert = current.getValue()[0] > 0;
        current.getValue()[0] -= isInsert ? 1 : -1;
        returned.project(new JoinedRow(
            current.getKey(), new GenericInternalRow(new Object[] {isInsert ? INSERT : DELETE})));
        return true;
    }

    /** Return for each row how many more times it was inserted than deleted. */
    private Map<UnsafeRow, long[]> counted() throws IOException {
        Map<UnsafeRow, long[]> found = new LinkedHashMap<>();
        for (PartitionReader<InternalRow> reader : readers) {
            while (reader.next()) {
                InternalRow row = reader.get();
                int change = row.getUTF8String(changeType).equals(INSERT) ? 1 : -1;
                found.computeIfAbsent(others.apply(row).copy(), each -> new long[1])[0] += change;
            }
        }
        return found;
    }

    @Override
    public InternalRow get() {
        return returned;
    }

    @Override
    public void close() throws IOException {
        for (PartitionReader<InternalRow> reader : readers) {
            reader.close();
        }
    }
}
