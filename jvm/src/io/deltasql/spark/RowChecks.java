package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.StringJoiner;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The rules of a table for its rows: computes generated columns, and finds rows that break a rule.
 *
 * The service sends the rules as Spark SQL, and the settings with which they are analysed. A task
 * counts broken rows instead of failing, so that the error shows all of them and no task is retried.
 */
final class RowChecks implements Serializable {
    private static final int SHOWN_ROWS = 5;
    private static final int SHOWN_WIDTH = 60;

    private final List<String> names;
    private final List<String> generated;
    private final RowProjection values;
    private final RowProjection broken;
    private final RowProjection texts;
    private final String help;

    /** The rows of a task that break a rule: their number, and the first of them as strings. */
    record BrokenRows(long count, List<List<String>> shown) implements Serializable {}

    /**
     * Return the checks for a write that `write_begin` began; null if the table has no rules.
     *
     * A generated column is computed where it is NULL, which is also the value of a column that an
     * INSERT leaves out. If `recomputes`, it is computed in all rows.
     */
    static RowChecks of(JsonNode begun, StructType schema, boolean recomputes) {
        return begun.hasNonNull("rules")
            ? new RowChecks(begun.get("rules"), schema, recomputes) : null;
    }

    private RowChecks(JsonNode rules, StructType schema, boolean recomputes) {
        SparkSession session = RowProjection.sessionWith(texts(rules.get("settings")));
        Map<String, String> computed = texts(rules.get("generated"));
        List<String> values = new ArrayList<>();
        List<String> texts = new ArrayList<>();
        for (StructField field : schema.fields()) {
            String column = DeltaSqlTable.quoted(field.name());
            String value = computed.get(field.name());
            values.add(value == null ? column
                : (recomputes ? value : "coalesce(" + column + ", " + value + ")")
                    + " AS " + column);
            String text = field.dataType() instanceof BinaryType
                ? "lower(hex(" + column + "))" : "CAST(" + column + " AS STRING)";
            texts.add("coalesce(" + text + ", '')");
        }
        this.names = List.of(schema.fieldNames());
        this.generated = new ArrayList<>(computed.keySet());
        this.values = computed.isEmpty() ? null : RowProjection.of(session, schema, values);
        this.broken = RowProjection.of(session, schema, List.of(rules.get("broken").asText()));
        this.texts = RowProjection.of(session, schema, texts);
        this.help = rules.get("help").asText();
    }

    private static Map<String, String> texts(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        object.fields().forEachRemaining(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    /** Return whether the checks may compute one of these columns. */
    boolean computesAny(List<String> columns) {
        return generated.stream().anyMatch(columns::contains);
    }

    /** Return whether a column is generated. */
    boolean computes(String column) {
        return generated.contains(column);
    }

    /** Start the checks of a task. */
    Task start(int partition) {
        return new Task(partition);
    }

    /** The checks of one task. */
    final class Task {
        private final int partition;
        private final RowProjection.Evaluation compute;
        private final RowProjection.Evaluation isBroken;
        private final List<List<String>> shown = new ArrayList<>();
        private long count;

        private Task(int partition) {
            this.partition = partition;
            compute = values == null ? null : values.start(partition);
            isBroken = broken.start(partition);
        }

        /**
         * Return the row with its generated columns; null if it, or a row before it, breaks a rule.
         *
         * The statement fails then, so no more rows need to be written.
         */
        InternalRow checked(InternalRow given) {
            InternalRow row = compute == null ? given : compute.of(given);
            if (isBroken.of(row).getBoolean(0)) {
                count++;
                if (shown.size() < SHOWN_ROWS) {
                    shown.add(shown(row));
                }
            }
            return count == 0 ? row : null;
        }

        private List<String> shown(InternalRow row) {
            UnsafeRow found = texts.start(partition).of(row);
            List<String> line = new ArrayList<>();
            for (int index = 0; index < names.size(); index++) {
                String text = found.getUTF8String(index).toString().replace('\n', ' ');
                line.add(text.substring(0, Math.min(SHOWN_WIDTH, text.length())));
            }
            return line;
        }

        BrokenRows broken() {
            return new BrokenRows(count, shown);
        }
    }

    /** Throw the error for the rows of all tasks that break a rule, if there are any. */
    void reject(List<BrokenRows> found) {
        long count = 0;
        List<List<String>> lines = new ArrayList<>(List.of(names));
        for (BrokenRows each : found) {
            count += each.count();
            lines.addAll(each.shown());
        }
        if (count > 0) {
            throw new DeltaSqlException(
                "InvalidDataError: Invalid data found: " + count + " rows failed validation check.\n"
                    + "Preview of invalid data:\n\n"
                    + table(lines.subList(0, Math.min(lines.size(), SHOWN_ROWS + 1)))
                    + "\nHelp: " + help,
                List.of("InvalidDataError"));
        }
    }

    /** Format lines, the first of which has the names of the columns, as an ASCII table. */
    private static String table(List<List<String>> lines) {
        int[] widths = new int[lines.get(0).size()];
        for (List<String> line : lines) {
            for (int index = 0; index < widths.length; index++) {
                widths[index] = Math.max(widths[index], line.get(index).length());
            }
        }
        StringBuilder frame = new StringBuilder("+");
        for (int width : widths) {
            frame.append("-".repeat(width + 2)).append('+');
        }
        StringJoiner found = new StringJoiner("\n", frame + "\n", "\n" + frame);
        for (List<String> line : lines) {
            StringJoiner cells = new StringJoiner(" | ", "| ", " |");
            for (int index = 0; index < widths.length; index++) {
                String cell = line.get(index);
                cells.add(cell + " ".repeat(widths[index] - cell.length()));
            }
            found.add(line == lines.get(0) ? cells + "\n" + frame : cells.toString());
        }
        return found.toString();
    }
}
