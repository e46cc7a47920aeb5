package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.TimestampType;
import org.apache.spark.unsafe.types.UTF8String;

/** Converts the arguments and results of procedures between Spark's values and JSON. */
final class JsonValues {
    private JsonValues() {}

    /** Return a value of Spark for JSON; a timestamp is a number of microseconds. */
    static Object json(Object value, DataType type) {
        if (value == null) {
            return null;
        }
        if (type instanceof ArrayType array) {
            return list((ArrayData) value, array.elementType());
        }
        if (type instanceof MapType map) {
            MapData data = (MapData) value;
            List<Object> keys = list(data.keyArray(), map.keyType());
            List<Object> values = list(data.valueArray(), map.valueType());
            Map<Object, Object> found = new LinkedHashMap<>();
            for (int index = 0; index < keys.size(); index++) {
                found.put(keys.get(index), values.get(index));
            }
            return found;
        }
        return value instanceof UTF8String ? value.toString() : value;
    }

    private static List<Object> list(ArrayData data, DataType type) {
        List<Object> found = new ArrayList<>();
        for (Object each : data.toObjectArray(type)) {
            found.add(json(each, type));
        }
        return found;
    }

    /** Return JSON as a value of Spark; a struct is an object, a map an array of pairs. */
    static Object value(JsonNode json, DataType type) {
        if (json == null || json.isNull()) {
            return null;
        }
        if (type instanceof StringType) {
            return UTF8String.fromString(json.asText());
        }
        if (type instanceof LongType || type instanceof TimestampType) {
            return json.asLong();
        }
        if (type instanceof IntegerType) {
            return json.asInt();
        }
        if (type instanceof DoubleType) {
            return json.asDouble();
        }
        if (type instanceof BooleanType) {
            return json.asBoolean();
        }
        if (type instanceof ArrayType array) {
            return array(json, -1, array.elementType());
        }
        if (type instanceof MapType map) {
            return new ArrayBasedMapData(
                array(json, 0, map.keyType()), array(json, 1, map.valueType()));
        }
        if (type instanceof StructType struct) {
            Object[] found = new Object[struct.length()];
            for (int index = 0; index < found.length; index++) {
                StructField field = struct.apply(index);
                found[index] = value(json.get(field.name()), field.dataType());
            }
            return new GenericInternalRow(found);
        }
        throw new IllegalArgumentException("A result has a column of the type " + type + ".");
    }

    /** Return the elements of an array, or the part of each element at a position. */
    private static ArrayData array(JsonNode json, int position, DataType type) {
        Object[] found = new Object[json.size()];
        for (int index = 0; index < found.length; index++) {
            JsonNode each = json.get(index);
            found[index] = value(position < 0 ? each : each.get(position), type);
        }
        return new GenericArrayData(found);
    }
}
