package io.deltasql.spark;

import java.util.Arrays;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The columns that identify a row of one version: its file, and its position in the file. */
final class MetadataColumns {
    final MetadataColumn file;
    final MetadataColumn position;

    private MetadataColumns(MetadataColumn file, MetadataColumn position) {
        this.file = file;
        this.position = position;
    }

    /** Return `_file` and `_pos`; a name that the table has gets another underscore. */
    static MetadataColumns of(StructType schema) {
        return new MetadataColumns(
            new Column(unused("_file", schema), DataTypes.StringType, "URL of the row's file"),
            new Column(
                unused("_pos", schema), DataTypes.LongType, "Position of the row in its file"));
    }

    private static String unused(String name, StructType schema) {
        String[] names = schema.fieldNames();
        boolean isUsed = Arrays.stream(names).anyMatch(name::equalsIgnoreCase);
        return isUsed ? unused("_" + name, schema) : name;
    }

    /** A column that is only read if a query names it. */
    private record Column(String name, DataType dataType, String comment)
            implements MetadataColumn {
        @Override
        public boolean isNullable() {
            return false;
        }
    }
}
