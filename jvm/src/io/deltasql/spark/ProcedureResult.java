package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The rows that a procedure returned. */
final class ProcedureResult implements LocalScan {
    private final StructType schema;
    private final List<InternalRow> rows = new ArrayList<>();

    ProcedureResult(JsonNode response) {
        schema = (StructType) DataType.fromJson(response.get("schema").asText());
        for (JsonNode row : response.get("rows")) {
            Object[] values = new Object[schema.length()];
            for (int index = 0; index < values.length; index++) {
                values[index] = JsonValues.value(row.get(index), schema.apply(index).dataType());
            }
            rows.add(new GenericInternalRow(values));
        }
    }

    @Override
    public StructType readSchema() {
        return schema;
    }

    @Override
    public InternalRow[] rows() {
        return rows.toArray(new InternalRow[0]);
    }
}
