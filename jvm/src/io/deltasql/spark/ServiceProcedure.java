package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.stream.StreamSupport;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.DateTimeUtils;
import org.apache.spark.sql.connector.catalog.procedures.BoundProcedure;
import org.apache.spark.sql.connector.catalog.procedures.ProcedureParameter;
import org.apache.spark.sql.connector.catalog.procedures.UnboundProcedure;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** A procedure of the service: `CALL lake.system.optimize('default.orders')`. */
final class ServiceProcedure implements UnboundProcedure, BoundProcedure {
    private final DeltaSqlCatalog catalog;
    private final JsonNode described;
    private final List<ProcedureParameter> parameters;

    ServiceProcedure(DeltaSqlCatalog catalog, JsonNode described) {
        this.catalog = catalog;
        this.described = described;
        this.parameters = StreamSupport.stream(described.get("parameters").spliterator(), false)
            .map(ServiceProcedure::parameter).toList();
    }

    private static ProcedureParameter parameter(JsonNode described) {
        ProcedureParameter.Builder found = ProcedureParameter
            .in(described.get("name").asText(), DataType.fromDDL(described.get("type").asText()))
            .comment(described.get("comment").asText());
        if (described.hasNonNull("default")) {
            found = found.defaultValue(described.get("default").asText());
        }
        return found.build();
    }

    @Override
    public String name() {
        return described.get("name").asText();
    }

    @Override
    public String description() {
        return described.get("comment").asText();
    }

    @Override
    public BoundProcedure bind(StructType given) {
        return this;
    }

    @Override
    public ProcedureParameter[] parameters() {
        return parameters.toArray(new ProcedureParameter[0]);
    }

    @Override
    public boolean isDeterministic() {
        return false;
    }

    @Override
    public Iterator<Scan> call(InternalRow values) {
        Map<String, Object> arguments = new HashMap<>();
        for (int index = 0; index < parameters.size(); index++) {
            DataType type = parameters.get(index).dataType();
            arguments.put(parameters.get(index).name(), JsonValues.json(values.get(index, type), type));
        }
        Map<String, Object> body = new HashMap<>();
        body.put("procedure", name());
        body.put("arguments", arguments);
        body.put("catalog", catalog.name());
        body.put("namespace", currentNamespace());
        body.put("time_zone",
            DateTimeUtils.getZoneId(SQLConf.get().sessionLocalTimeZone()).normalized().getId());
        JsonNode response = switch (described.path("transaction").asText()) {
            case "begin" -> begin(body);
            case "end" -> end(body);
            default -> catalog.service().call("call", body);
        };
        return List.<Scan>of(new ProcedureResult(response)).iterator();
    }

    /** Return the namespace of names without one; null if another catalog is the current one. */
    private String currentNamespace() {
        org.apache.spark.sql.catalog.Catalog current = SparkSession.active().catalog();
        if (!current.currentCatalog().equals(catalog.name())) {
            return null;
        }
        String quoted = current.currentDatabase();
        return quoted.startsWith("`")
            ? quoted.substring(1, quoted.length() - 1).replace("``", "`") : quoted;
    }

    private JsonNode begin(Map<String, Object> body) {
        JsonNode response = catalog.service().call("call", body);
        catalog.begin(response.get("transaction").asText());
        return response;
    }

    /** Commit or roll back; if the response is lost, the request can be sent again. */
    private JsonNode end(Map<String, Object> body) {
        try {
            JsonNode response = catalog.service().askAgain("call", body);
            catalog.end();
            return response;
        } catch (DeltaSqlException error) {
            if (!(error.getCause() instanceof IOException)) {
                catalog.end(); // also after a conflict
            }
            throw error;
        }
    }
}
