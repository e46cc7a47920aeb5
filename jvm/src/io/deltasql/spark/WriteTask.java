package io.deltasql.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Murmur3HashFunction;
import org.apache.spark.sql.connector.catalog.functions.BoundFunction;
import org.apache.spark.sql.connector.catalog.functions.ScalarFunction;
import org.apache.spark.sql.connector.catalog.functions.UnboundFunction;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The function that distributes the rows of a MERGE to tasks.
 *
 * Its first argument is the file of a row, and all rows of a file have the same result. A new row
 * has no file: its result depends on the other arguments, so that many tasks write new rows.
 */
final class WriteTask implements UnboundFunction {
    static final String NAME = "deltasql_write_task";

    @Override
    public String name() {
        return NAME;
    }

    @Override
    public String description() {
        return "Distributes changed rows by their file, and new rows by their values.";
    }

    @Override
    public BoundFunction bind(StructType arguments) {
        DataType[] types = new DataType[arguments.length()];
        for (int index = 0; index < types.length; index++) {
            types[index] = arguments.apply(index).dataType();
        }
        return new Bound(types);
    }

    /** The function for arguments of these types. */
    private record Bound(DataType[] types) implements ScalarFunction<Long> {
        @Override
        public String name() {
            return NAME;
        }

        @Override
        public DataType[] inputTypes() {
            return types;
        }

        @Override
        public DataType resultType() {
            return DataTypes.LongType;
        }

        @Override
        public Long produceResult(InternalRow row) {
            int used = row.isNullAt(0) ? types.length : 1;
            long hash = 42;
            for (int index = 0; index < used; index++) {
                Object value = row.isNullAt(index) ? null : row.get(index, types[index]);
                hash = Murmur3HashFunction.hash(value, types[index], hash);
            }
            return hash;
        }
    }
}
