package io.deltasql.spark;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.execution.datasources.PartitionedFile;

/**
 * Computes the row ids and commit versions of a table with row tracking.
 *
 * `position` is the position of three columns in the rows of a file: the position of the row in the
 * file, and the id and the commit version that the file has for the row. These are null for a row
 * that was written together with its file. Then the id follows from the position and the first id of
 * the file, and the commit version is that of the file.
 */
record RowIds(int position) implements Serializable {
    OfFile of(PartitionedFile file) {
        var own = file.otherConstantMetadataColumnValues();
        return new OfFile(
            (Long) own.getOrElse(TableScan.FIRST_ID, () -> null),
            (Long) own.getOrElse(TableScan.FIRST_VERSION, () -> null));
    }

    /** The ids of the rows of one file. */
    final class OfFile {
        private final Long firstId;
        private final Long firstVersion;
        private final JoinedRow joined = new JoinedRow();

        /**
         * Both are null for a file that is not committed yet, and `firstVersion` also for a file
         * whose writer recorded no commit version.
         */
        private OfFile(Long firstId, Long firstVersion) {
            this.firstId = firstId;
            this.firstVersion = firstVersion;
        }

        /** Return a row with a struct of its id and its commit version as the last column. */
        InternalRow added(InternalRow row) {
            Long first = firstId == null ? null : firstId + row.getLong(position);
            Object[] found = {
                row.isNullAt(position + 1) ? first : (Long) row.getLong(position + 1),
                row.isNullAt(position + 2) ? firstVersion : (Long) row.getLong(position + 2)};
            return joined.apply(
                row, new GenericInternalRow(new Object[] {new GenericInternalRow(found)}));
        }
    }
}
