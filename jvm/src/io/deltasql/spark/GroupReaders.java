package io.deltasql.spark;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.FilePartition;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads each task of ChangedFiles with the readers of its group. */
final class GroupReaders implements PartitionReaderFactory {
    private final List<FileReaders> groups;
    private final boolean isColumnar;

    GroupReaders(List<FileReaders> groups, boolean isColumnar) {
        this.groups = new ArrayList<>(groups);
        this.isColumnar = isColumnar;
    }

    @Override
    public boolean supportColumnarReads(InputPartition partition) {
        return isColumnar;
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
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
