package io.deltasql.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads each task of ChangedFiles with the readers of its group. */
final class GroupReaders implements PartitionReaderFactory {
    private final List<FileReaders> groups;
    private final boolean isColumnar;
    private final StructType schema;
    private final StructType columns;

    /** `schema` has the columns of tasks in which rows cancel out, `columns` those to return. */
    GroupReaders(
            List<FileReaders> groups, boolean isColumnar, StructType schema, StructType columns) {
        this.groups = new ArrayList<>(groups);
        this.isColumnar = isColumnar;
        this.schema = schema;
        this.columns = columns;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return isColumnar;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        if (partition instanceof CancellingPartition whole) {
            List<PartitionReader<InternalRow>> readers = new ArrayList<>();
            whole.parts().forEach(each -> readers.add(readers(each).createReader(each)));
            return new CancellingReader(readers, schema, columns);
        }
        return readers(partition).createReader(partition);
    }

    @Override
    public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
        return readers(partition).createColumnarReader(partition);
    }

    private FileReaders readers(InputPartition partition) {
        var own = ((FilePartition) partition).files()[0].otherConstantMetadataColumnValues();
        return groups.get((Integer) own.apply(ChangedFiles.GROUP));
    }
}
