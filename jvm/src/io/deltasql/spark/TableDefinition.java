package io.deltasql.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.IdentityColumnSpec;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.MetadataBuilder;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** The definition in a CREATE TABLE or REPLACE TABLE, as the request `write_begin` takes it. */
final class TableDefinition {
    private static final String GENERATED = "delta.generationExpression";
    private static final String DEFAULT = "CURRENT_DEFAULT";
    private static final Set<String> PROVIDERS = Set.of("deltasql", "delta");
    private static final Set<String> RESERVED = Set.of(
        TableCatalog.PROP_PROVIDER, TableCatalog.PROP_LOCATION, TableCatalog.PROP_COMMENT,
        TableCatalog.PROP_OWNER, TableCatalog.PROP_EXTERNAL,
        TableCatalog.PROP_IS_MANAGED_LOCATION);

    private TableDefinition() {}

    /** Return a definition with the constraints that Spark has since 4.1. */
    static Map<String, Object> of(String catalog, TableInfo info) {
        Map<String, Object> found =
            of(catalog, info.columns(), info.partitions(), info.properties());
        found.put("constraints", CheckConstraints.conditions(info.constraints()));
        return found;
    }

    static Map<String, Object> of(
            String catalog, Column[] columns, Transform[] partitions,
            Map<String, String> properties) {
        String provider = properties.getOrDefault(TableCatalog.PROP_PROVIDER, "deltasql");
        // `saveAsTable` sends the default format of the session if the user gives none.
        if (!PROVIDERS.contains(provider.toLowerCase(Locale.ROOT))
                && !provider.equals(SQLConf.get().defaultDataSourceName())) {
            throw new IllegalArgumentException(
                "A table of the catalog " + catalog + " cannot be created USING " + provider
                    + ": leave out USING.");
        }
        Map<String, String> kept = new LinkedHashMap<>();
        properties.forEach((key, value) -> {
            if (!RESERVED.contains(key) && !key.startsWith(TableCatalog.OPTION_PREFIX)) {
                kept.put(key, value);
            }
        });
        Map<String, Object> found = new LinkedHashMap<>();
        found.put("schema", schema(columns).json());
        found.put("properties", kept);
        found.put("comment", properties.get(TableCatalog.PROP_COMMENT));
        found.put("location", properties.get(TableCatalog.PROP_LOCATION));
        List<String> partitionBy = new ArrayList<>();
        List<String> clusterBy = new ArrayList<>();
        for (Transform each : partitions) {
            List<String> names = each.name().equals("identity") ? partitionBy
                : each.name().equals("cluster_by") ? clusterBy : null;
            if (names == null) {
                throw new IllegalArgumentException(
                    "PARTITIONED BY takes columns, not " + each.describe() + ".");
            }
            for (NamedReference column : each.references()) {
                names.add(String.join(".", column.fieldNames()));
            }
        }
        found.put("partition_by", partitionBy);
        found.put("cluster_by", clusterBy);
        return found;
    }

    /** Return the columns with their defaults and generated values where Delta has them. */
    private static StructType schema(Column[] columns) {
        return new StructType(
            Arrays.stream(columns).map(TableDefinition::field).toArray(StructField[]::new));
    }

    private static StructField field(Column column) {
        MetadataBuilder metadata = new MetadataBuilder();
        if (column.metadataInJSON() != null) {
            metadata.withMetadata(Metadata.fromJson(column.metadataInJSON()));
        }
        if (column.generationExpression() != null) {
            metadata.putString(GENERATED, column.generationExpression());
        }
        if (column.defaultValue() != null) {
            metadata.putString(DEFAULT, column.defaultValue().getSql());
        }
        IdentityColumnSpec identity = column.identityColumnSpec();
        if (identity != null) {
            metadata.putLong("delta.identity.start", identity.getStart());
            metadata.putLong("delta.identity.step", identity.getStep());
            metadata.putBoolean(
                "delta.identity.allowExplicitInsert", identity.isAllowExplicitInsert());
        }
        StructField found = new StructField(
            column.name(), column.dataType(), column.nullable(), metadata.build());
        return column.comment() == null ? found : found.withComment(column.comment());
    }

    /** Return the column of ALTER TABLE ADD COLUMNS. */
    static StructField field(TableChange.AddColumn add) {
        MetadataBuilder metadata = new MetadataBuilder();
        if (add.defaultValue() != null) {
            metadata.putString(DEFAULT, add.defaultValue().getSql()); // the service says what to do
        }
        String[] path = add.fieldNames();
        StructField found = new StructField(
            path[path.length - 1], add.dataType(), add.isNullable(), metadata.build());
        return add.comment() == null ? found : found.withComment(add.comment());
    }
}
