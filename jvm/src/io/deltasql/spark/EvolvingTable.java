package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.SupportsSchemaEvolution;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * A table in a transaction, to which statements WITH SCHEMA EVOLUTION can add columns.
 *
 * Spark adds the columns when it analyses the statement. In a transaction they are staged, so that
 * they and the rows are one commit. Earlier releases than Spark 4.2 cannot load this class.
 */
final class EvolvingTable extends DeltaSqlTable implements SupportsSchemaEvolution {
    private EvolvingTable(DeltaSqlCatalog catalog, Identifier ident, JsonNode described) {
        super(catalog, ident, described, true);
    }

    /** Return a table. The return type is the superclass, which every release of Spark can load. */
    static DeltaSqlTable of(DeltaSqlCatalog catalog, Identifier ident, JsonNode described) {
        return new EvolvingTable(catalog, ident, described);
    }

    @Override
    boolean addsColumns() {
        return true;
    }

    @Override
    public Set<TableCapability> capabilities() {
        Set<TableCapability> found = new HashSet<>(super.capabilities());
        found.add(TableCapability.AUTOMATIC_SCHEMA_EVOLUTION);
        return found;
    }

    /** Accept new columns and new fields of structs; the types of columns do not change. */
    @Override
    public boolean supportsColumnChange(TableChange.ColumnChange change) {
        if (!(change instanceof TableChange.AddColumn)) {
            return false;
        }
        DataType outer = schema();
        String[] path = change.fieldNames();
        for (int index = 0; index < path.length - 1; index++) {
            outer = outer instanceof StructType struct ? fieldType(struct, path[index]) : null;
        }
        return outer instanceof StructType;
    }

    private static DataType fieldType(StructType struct, String name) {
        for (var field : struct.fields()) {
            if (field.name().equalsIgnoreCase(name)) {
                return field.dataType();
            }
        }
        return null;
    }
}
