package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StructType;

/**
 * count, min and max of each partition, from the statistics of the files.
 *
 * Spark combines the partitions. The service decides whether the statistics are exact.
 */
final class AggregateScan implements LocalScan, TableRead {
    private final DeltaSqlTable table;
    private final PushedFilters filters;
    private final StructType schema;
    private final InternalRow[] rows;

    private AggregateScan(
            DeltaSqlTable table, PushedFilters filters, StructType schema, InternalRow[] rows) {
        this.table = table;
        this.filters = filters;
        this.schema = schema;
        this.rows = rows;
    }

    /** One column of the result: a function, or a partition column by which rows are grouped. */
    private record Output(String function, String column, DataType type) {}

    /** Return the result of an aggregation; null if the files must be read for it. */
    static AggregateScan of(DeltaSqlTable table, PushedFilters filters, Aggregation aggregation) {
        List<Output> outputs = outputs(table, aggregation);
        if (outputs == null) {
            return null;
        }
        Set<String> columns = new LinkedHashSet<>();
        outputs.forEach(each -> columns.add(each.column));
        columns.remove(null);
        columns.removeAll(table.partitionColumns());
        Map<String, Object> body = table.request();
        body.put("filters", Filters.json(filters.translated));
        body.put("columns", columns);
        JsonNode response = table.catalog.service().call("aggregate", body);
        if (!response.get("is_exact").asBoolean()) {
            return null;
        }
        StructType schema = new StructType();
        for (Output each : outputs) {
            String name = each.function == null
                ? each.column : each.function + "(" + (each.column == null ? "*" : each.column) + ")";
            schema = schema.add(name, each.type);
        }
        return new AggregateScan(table, filters, schema, rows(table, filters, outputs, response,
            aggregation.groupByExpressions().length > 0));
    }

    private static List<Output> outputs(DeltaSqlTable table, Aggregation aggregation) {
        List<Output> found = new ArrayList<>();
        for (Expression each : aggregation.groupByExpressions()) {
            String column = column(table, each);
            if (!table.partitionColumns().contains(column)) {
                return null;
            }
            found.add(new Output(null, column, table.schema().apply(column).dataType()));
        }
        for (AggregateFunc each : aggregation.aggregateExpressions()) {
            if (each instanceof CountStar) {
                found.add(new Output("count", null, DataTypes.LongType));
                continue;
            }
            boolean isCount = each instanceof Count count && !count.isDistinct();
            boolean isBound = each instanceof Min || each instanceof Max;
            String column = isCount || isBound ? column(table, each.children()[0]) : null;
            if (column == null) {
                return null;
            }
            found.add(new Output(
                isCount ? "count" : each instanceof Min ? "min" : "max", column,
                isCount ? DataTypes.LongType : table.schema().apply(column).dataType()));
        }
        return found;
    }

    /** Return the name of a column; null for a nested column and for any other expression. */
    private static String column(DeltaSqlTable table, Expression expression) {
        return expression instanceof NamedReference reference && reference.fieldNames().length == 1
            && Arrays.asList(table.schema().fieldNames()).contains(reference.fieldNames()[0])
            ? reference.fieldNames()[0] : null;
    }

    private static InternalRow[] rows(
            DeltaSqlTable table, PushedFilters filters, List<Output> outputs, JsonNode response,
            boolean isGrouped) {
        StructType partitionSchema = table.partitionSchema();
        InternalRow[] partitions = TableScan.partitionValues(
            response.get("partitions"), partitionSchema, table.partitionColumns());
        List<InternalRow> found = new ArrayList<>();
        for (int index = 0; index < partitions.length; index++) {
            long count = response.get("rows").get(index).asLong();
            if (count == 0 || !filters.match(partitions[index])) {
                continue;
            }
            Object[] values = new Object[outputs.size()];
            for (int position = 0; position < values.length; position++) {
                Output output = outputs.get(position);
                if (output.column == null) {
                    values[position] = count;
                } else if (table.partitionColumns().contains(output.column)) {
                    int column = partitionSchema.fieldIndex(output.column);
                    DataType type = partitionSchema.apply(column).dataType();
                    Object value = partitions[index].get(column, type);
                    values[position] =
                        !"count".equals(output.function) ? value : value == null ? 0L : count;
                } else {
                    values[position] = value(
                        response.get("columns").get(output.column).get(output.function).get(index),
                        output.type);
                }
            }
            found.add(new GenericInternalRow(values));
        }
        if (found.isEmpty() && !isGrouped) {
            // Spark adds the counts of all rows, and the sum of no rows is not 0 but NULL.
            found.add(new GenericInternalRow(outputs.stream()
                .map(each -> each.function.equals("count") ? (Object) 0L : null).toArray()));
        }
        return found.toArray(new InternalRow[0]);
    }

    private static Object value(JsonNode number, DataType type) {
        if (number.isNull()) {
            return null;
        }
        if (type instanceof ByteType) {
            return (byte) number.asInt();
        }
        if (type instanceof ShortType) {
            return (short) number.asInt();
        }
        return type instanceof IntegerType || type instanceof DateType
            ? (Object) number.asInt() : (Object) number.asLong();
    }

    @Override
    public InternalRow[] rows() {
        return rows;
    }

    @Override
    public boolean isOf(DeltaSqlTable other) {
        return table.id.equals(other.id) && table.isLatest;
    }

    @Override
    public Filter[] filters() {
        return filters.translated;
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public String description() {
        return table.name() + " version " + table.version + ", from statistics: "
            + Arrays.toString(schema.fieldNames());
    }
}
