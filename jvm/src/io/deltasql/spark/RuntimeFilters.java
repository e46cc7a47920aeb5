package io.deltasql.spark;

import java.math.BigDecimal;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;

/** Translates the join keys that Spark delivers while a query runs to filters of the protocol. */
final class RuntimeFilters {
    private static final int MOST_VALUES = 1000;

    private RuntimeFilters() {}

    /** Return the columns whose values can be translated. */
    static List<String> columns(StructType schema) {
        List<String> found = new ArrayList<>();
        for (StructField field : schema.fields()) {
            if (kind(field.dataType()) != null) {
                found.add(field.name());
            }
        }
        return found;
    }

    /** Return a filter for each predicate `column IN (values)`; others skip no file. */
    static List<Map<String, Object>> json(Predicate[] predicates) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (Predicate each : predicates) {
            if (isIn(each)) {
                found.addAll(in((NamedReference) each.children()[0], values(each)));
            }
        }
        return found;
    }

    /** Return whether no row can match, because one side of a join has no keys. */
    static boolean matchNothing(Predicate[] predicates) {
        return Arrays.stream(predicates).anyMatch(each -> isIn(each) && values(each).isEmpty());
    }

    private static boolean isIn(Predicate predicate) {
        return predicate.name().equals("IN") && predicate.children()[0] instanceof NamedReference;
    }

    /** Return the values of IN without NULL, which is equal to no value. */
    private static List<Literal<?>> values(Predicate predicate) {
        List<Literal<?>> found = new ArrayList<>();
        for (Expression each : predicate.children()) {
            if (each instanceof Literal<?> value && value.value() != null) {
                found.add(value);
            }
        }
        return found;
    }

    private static List<Map<String, Object>> in(NamedReference column, List<Literal<?>> values) {
        String kind = values.isEmpty() ? null : kind(values.get(0).dataType());
        if (kind == null) {
            return List.of();
        }
        if (values.size() <= MOST_VALUES) {
            Map<String, Object> found = filter("in", column);
            found.put("values", values.stream().map(each -> literal(kind, each)).toList());
            return List.of(found);
        }
        if (kind.equals("string") || kind.equals("decimal")) {
            return List.of();
        }
        var numbers = values.stream().mapToLong(each -> ((Number) each.value()).longValue())
            .summaryStatistics();
        Map<String, Object> low = filter(">=", column);
        low.put("value", Map.of(kind, numbers.getMin()));
        Map<String, Object> high = filter("<=", column);
        high.put("value", Map.of(kind, numbers.getMax()));
        return List.of(low, high);
    }

    private static Map<String, Object> filter(String op, NamedReference column) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("op", op);
        found.put("column", column.fieldNames());
        return found;
    }

    private static String kind(DataType type) {
        if (type instanceof ByteType || type instanceof ShortType || type instanceof IntegerType
                || type instanceof LongType) {
            return "long";
        }
        if (type instanceof DateType) {
            return "date";
        }
        if (type instanceof TimestampType) {
            return "timestamp";
        }
        if (type instanceof TimestampNTZType) {
            return "timestamp_ntz";
        }
        return type instanceof DecimalType ? "decimal" : type instanceof StringType ? "string" : null;
    }

    private static Map<String, Object> literal(String kind, Literal<?> literal) {
        Object value = literal.value();
        if (value instanceof Decimal decimal) {
            BigDecimal number = decimal.toJavaBigDecimal();
            return Map.of(kind, number.toPlainString());
        }
        return Map.of(kind, value instanceof Number ? value : value.toString());
    }
}
