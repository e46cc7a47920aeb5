package io.deltasql.spark;

import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.write.DeltaWriteBuilder;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.RowLevelOperation;
import org.apache.spark.sql.connector.write.SupportsDelta;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * An UPDATE, DELETE or MERGE.
 *
 * Spark plans which rows change, and identifies them by file and position. The tasks that write
 * then read the files with such rows again and write them without or with the new rows. Files
 * without such rows stay as they are. If the table has deletion vectors, the tasks write only new
 * rows, and report the positions of rows that are deleted or replaced.
 */
final class RowOperation implements SupportsDelta {
    final DeltaSqlTable table;
    private final RowLevelOperation.Command command;
    private TableScan scan;

    RowOperation(DeltaSqlTable table, RowLevelOperation.Command command) {
        this.table = table;
        this.command = command;
    }

    @Override
    public RowLevelOperation.Command command() {
        return command;
    }

    @Override
    public NamedReference[] rowId() {
        return new NamedReference[] {
            Expressions.column(table.metadata.file.name()),
            Expressions.column(table.metadata.position.name())};
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new TableScanBuilder(table, options) {
            @Override
            public Scan build() {
                scan = new RowScan(RowOperation.this, scan());
                return scan;
            }
        };
    }

    /** Return the scan of the statement; null if Spark found that no row can change. */
    TableScan scan() {
        return scan;
    }

    @Override
    public DeltaWriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        return new RowWrite(this, info);
    }
}
