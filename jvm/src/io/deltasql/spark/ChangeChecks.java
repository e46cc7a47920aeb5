package io.deltasql.spark;

import java.util.Objects;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;

/** Checks the new rows of an UPDATE or MERGE in one task; rows that are copied are not checked. */
final class ChangeChecks {
    private final RowChecks.Task task;
    private final StructType schema;
    private final boolean[] isGenerated;

    ChangeChecks(RowChecks checks, StructType schema, int partitionId) {
        this.task = checks.start(partitionId);
        this.schema = schema;
        this.isGenerated = new boolean[schema.length()];
        for (int index = 0; index < isGenerated.length; index++) {
            isGenerated[index] = checks.computes(schema.apply(index).name());
        }
    }

    /** Return a new row with its generated columns; null if a row breaks a rule. */
    InternalRow inserted(InternalRow row) {
        return task.checked(row);
    }

    /**
     * Return an updated row with its generated columns; null if a row breaks a rule.
     *
     * A generated column that has the value of the old row was not set, so it is computed again.
     */
    InternalRow updated(InternalRow old, InternalRow row) {
        Object[] values = new Object[isGenerated.length];
        for (int index = 0; index < values.length; index++) {
            Object value = value(row, index);
            values[index] =
                isGenerated[index] && Objects.deepEquals(value, value(old, index)) ? null : value;
        }
        return task.checked(new GenericInternalRow(values));
    }

    private Object value(InternalRow row, int index) {
        return row.isNullAt(index) ? null : row.get(index, schema.apply(index).dataType());
    }

    RowChecks.BrokenRows broken() {
        return task.broken();
    }
}
