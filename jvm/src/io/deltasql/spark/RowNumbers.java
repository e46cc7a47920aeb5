package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.StructType;

/**
 * The identity columns of a table: gives the new rows of a write their numbers.
 *
 * A column is generated where it is NULL, which is also the value of a column that an INSERT leaves
 * out. A task collects some rows, counts those without a number, and asks the driver for as many. So
 * a small write leaves no gap.
 */
final class RowNumbers implements Serializable {
    private static final int COLLECTED = 1_000;

    private final String txnId;
    private final StructType schema;
    private final List<Column> columns;
    private final transient NumberSource source;

    /**
     * An identity column: its position, the difference of its numbers, the error for a row that
     * gives a value to it, or null, and the error for a row that changes its value.
     */
    record Column(
            String name, int position, long step, DeltaSqlException given,
            DeltaSqlException updated) implements Serializable {}

    /** Receives rows with their numbers. */
    interface Receiver {
        void write(InternalRow row) throws IOException;
    }

    private RowNumbers(Service service, JsonNode begun, StructType schema) {
        this.txnId = begun.get("txn_id").asText();
        this.schema = schema;
        this.columns = new ArrayList<>();
        for (JsonNode each : begun.get("identity")) {
            String name = each.get("column").asText();
            columns.add(new Column(
                name, schema.fieldIndex(name), each.get("step").asLong(),
                each.hasNonNull("given") ? Service.error(each.get("given")) : null,
                Service.error(each.get("updated"))));
        }
        this.source = NumberSource.start(service, txnId, columns);
    }

    /** Return the numbers of a write that `write_begin` began; null without identity columns. */
    static RowNumbers of(Service service, JsonNode begun, StructType schema) {
        return begun.path("identity").isEmpty() ? null : new RowNumbers(service, begun, schema);
    }

    /** End a write; `numbers` may be null. */
    static void end(RowNumbers numbers) {
        if (numbers != null) {
            numbers.source.stop();
        }
    }

    /** Start the numbers of a task, which go to a receiver with their rows. */
    Task start(Receiver receiver) {
        return new Task(receiver);
    }

    /** The rows of one task that wait for their numbers. */
    final class Task {
        private final Receiver receiver;
        private final UnsafeProjection copied = UnsafeProjection.create(schema);
        private final List<UnsafeRow> rows = new ArrayList<>();
        private DeltaSqlException refused;

        private Task(Receiver receiver) {
            this.receiver = receiver;
        }

        /** Take a new row. */
        void add(InternalRow given) throws IOException {
            for (Column column : columns) {
                if (column.given() != null && !given.isNullAt(column.position())) {
                    refused = column.given();
                }
            }
            rows.add(copied.apply(given).copy());
            if (rows.size() == COLLECTED) {
                flush();
            }
        }

        /** Refuse an updated row whose number is another one than that of the old row. */
        void checkUpdate(InternalRow old, InternalRow row) {
            for (Column column : columns) {
                int at = column.position();
                boolean isSame = old.isNullAt(at) == row.isNullAt(at)
                    && (old.isNullAt(at) || old.getLong(at) == row.getLong(at));
                if (!isSame) {
                    refused = column.updated();
                }
            }
        }

        /** Send the collected rows to the receiver. */
        void flush() throws IOException {
            for (int index = 0; index < columns.size() && refused == null; index++) {
                number(index);
            }
            for (UnsafeRow row : rows) {
                if (refused == null) { // otherwise the statement fails
                    receiver.write(row);
                }
            }
            rows.clear();
        }

        private void number(int index) {
            Column column = columns.get(index);
            UnsafeRow[] lacking = rows.stream()
                .filter(row -> row.isNullAt(column.position())).toArray(UnsafeRow[]::new);
            if (lacking.length > 0) {
                long next = NumberSource.ask(txnId, index, lacking.length);
                for (UnsafeRow row : lacking) {
                    row.setLong(column.position(), next);
                    next += column.step();
                }
            }
        }

        /** Return the error for a row of this task; null if there is none. */
        DeltaSqlException refused() {
            return refused;
        }
    }
}
