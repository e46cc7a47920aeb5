package io.deltasql.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.connector.catalog.MetadataColumn;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The metadata columns of a row: its file and its position in the file, which identify the row in
 * one version. A table with row tracking also has a struct with the row's id and commit version.
 */
final class MetadataColumns {
    private static final StructType ROW_IDS = new StructType()
        .add("row_id", DataTypes.LongType)
        .add("row_commit_version", DataTypes.LongType);

    final MetadataColumn file;
    final MetadataColumn position;
    private final MetadataColumn rowIds;

    private MetadataColumns(MetadataColumn file, MetadataColumn position, MetadataColumn rowIds) {
        this.file = file;
        this.position = position;
        this.rowIds = rowIds;
    }

    /**
     * Return `_file`, `_pos` and, if rows have ids, `_metadata`; a name that the table has gets
     * another underscore.
     */
    static MetadataColumns of(StructType schema, boolean hasRowIds) {
        MetadataColumn rowIds = hasRowIds
            ? new Column(unused("_metadata", schema), ROW_IDS, "Id and commit version of the row")
            : null;
        return new MetadataColumns(
            new Column(unused("_file", schema), DataTypes.StringType, "URL of the row's file"),
            new Column(
                unused("_pos", schema), DataTypes.LongType, "Position of the row in its file"),
            rowIds);
    }

    MetadataColumn[] all() {
        List<MetadataColumn> found = new ArrayList<>(List.of(file, position));
        if (rowIds != null) {
            found.add(rowIds);
        }
        return found.toArray(new MetadataColumn[0]);
    }

    boolean hasRowIds() {
        return rowIds != null;
    }

    /** Return whether a column is the struct of row ids, of which a query may need one field. */
    boolean isRowIds(StructField field) {
        return rowIds != null && field.name().equals(rowIds.name());
    }

    /** Return the struct of row ids as a column with both fields. */
    StructField rowIds() {
        return new StructField(rowIds.name(), ROW_IDS, false, Metadata.empty());
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
