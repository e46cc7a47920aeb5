package io.deltasql.spark;

import java.math.BigDecimal;
import java.sql.Date;
import java.sql.Timestamp;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.sources.And;
import org.apache.spark.sql.sources.EqualNullSafe;
import org.apache.spark.sql.sources.EqualTo;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.sources.GreaterThan;
import org.apache.spark.sql.sources.GreaterThanOrEqual;
import org.apache.spark.sql.sources.In;
import org.apache.spark.sql.sources.IsNotNull;
import org.apache.spark.sql.sources.IsNull;
import org.apache.spark.sql.sources.LessThan;
import org.apache.spark.sql.sources.LessThanOrEqual;
import org.apache.spark.sql.sources.Or;

/** Translates Spark's filters to those of the protocol. */
final class Filters {
    private static final int MOST_VALUES = 1000;

    private Filters() {}

    /** Return filters as JSON, without those that are always true or not in the protocol. */
    static List<Map<String, Object>> json(Filter[] filters) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (Filter filter : filters) {
            Map<String, Object> json = json(filter);
            if (json != null) {
                found.add(json);
            }
        }
        return found;
    }

    /** Return a filter as JSON; null if the protocol does not have it. */
    static Map<String, Object> json(Filter filter) {
        if (filter instanceof And and) {
            return both("and", json(and.left()), json(and.right()));
        }
        if (filter instanceof Or or) {
            return both("or", json(or.left()), json(or.right()));
        }
        if (filter.v2references().length != 1) {
            return null;
        }
        if (filter instanceof IsNull) {
            return column("is null", filter);
        }
        if (filter instanceof IsNotNull) {
            return column("is not null", filter);
        }
        if (filter instanceof In in) {
            return in(in);
        }
        if (filter instanceof EqualTo equal) {
            return comparison("=", filter, equal.value());
        }
        if (filter instanceof EqualNullSafe equal) {
            return equal.value() == null
                ? column("is null", filter) : comparison("=", filter, equal.value());
        }
        if (filter instanceof LessThan less) {
            return comparison("<", filter, less.value());
        }
        if (filter instanceof LessThanOrEqual less) {
            return comparison("<=", filter, less.value());
        }
        if (filter instanceof GreaterThan greater) {
            return comparison(">", filter, greater.value());
        }
        if (filter instanceof GreaterThanOrEqual greater) {
            return comparison(">=", filter, greater.value());
        }
        return null;
    }

    private static Map<String, Object> both(
            String op, Map<String, Object> left, Map<String, Object> right) {
        return left == null || right == null
            ? null : Map.of("op", op, "children", List.of(left, right));
    }

    private static Map<String, Object> column(String op, Filter filter) {
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("op", op);
        found.put("column", filter.v2references()[0]);
        return found;
    }

    private static Map<String, Object> comparison(String op, Filter filter, Object value) {
        Map<String, Object> literal = literal(value);
        if (literal == null) {
            return null;
        }
        Map<String, Object> found = column(op, filter);
        found.put("value", literal);
        return found;
    }

    private static Map<String, Object> in(In filter) {
        if (filter.values().length == 0 || filter.values().length > MOST_VALUES) {
            return null;
        }
        List<Object> values = new ArrayList<>();
        for (Object value : filter.values()) {
            Map<String, Object> literal = literal(value);
            if (literal == null) {
                return null;
            }
            values.add(literal);
        }
        Map<String, Object> found = column("in", filter);
        found.put("values", values);
        return found;
    }

    /** Return a value with its type; null if its comparison is not exact, as for 32-bit floats. */
    private static Map<String, Object> literal(Object value) {
        if (value instanceof Byte || value instanceof Short || value instanceof Integer
                || value instanceof Long) {
            return Map.of("long", ((Number) value).longValue());
        }
        if (value instanceof Double number && !number.isNaN() && !number.isInfinite()) {
            return Map.of("double", number);
        }
        if (value instanceof BigDecimal number) {
            return Map.of("decimal", number.toPlainString());
        }
        if (value instanceof Boolean || value instanceof String) {
            return Map.of(value instanceof String ? "string" : "boolean", value);
        }
        if (value instanceof Date date) {
            return Map.of("date", DateTimeUtils.fromJavaDate(date));
        }
        if (value instanceof LocalDate date) {
            return Map.of("date", date.toEpochDay());
        }
        if (value instanceof Timestamp timestamp) {
            return Map.of("timestamp", DateTimeUtils.fromJavaTimestamp(timestamp));
        }
        if (value instanceof Instant instant) {
            return Map.of("timestamp", DateTimeUtils.instantToMicros(instant));
        }
        if (value instanceof LocalDateTime local) {
            return Map.of("timestamp_ntz", DateTimeUtils.localDateTimeToMicros(local));
        }
        return null;
    }
}
