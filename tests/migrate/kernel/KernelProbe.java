import io.delta.kernel.Operation;
import io.delta.kernel.Scan;
import io.delta.kernel.Snapshot;
import io.delta.kernel.Table;
import io.delta.kernel.data.FilteredColumnarBatch;
import io.delta.kernel.data.Row;
import io.delta.kernel.defaults.engine.DefaultEngine;
import io.delta.kernel.engine.Engine;
import io.delta.kernel.engine.FileReadResult;
import io.delta.kernel.internal.InternalScanFileUtils;
import io.delta.kernel.internal.data.ScanStateRow;
import io.delta.kernel.internal.util.Utils;
import io.delta.kernel.types.StructType;
import io.delta.kernel.utils.CloseableIterable;
import io.delta.kernel.utils.CloseableIterator;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;

/** Prints how many rows Delta's Java kernel reads of a table, and the result of a commit. */
final class KernelProbe {
    public static void main(String[] arguments) throws Exception {
        Engine engine = DefaultEngine.create(new Configuration());
        Table table = Table.forPath(engine, arguments[0]);
        Snapshot snapshot = table.getLatestSnapshot(engine);
        System.out.println("rows " + rows(engine, snapshot.getScanBuilder().build()));
        try {
            table.createTransactionBuilder(engine, "probe", Operation.WRITE)
                .build(engine).commit(engine, CloseableIterable.emptyIterable());
            System.out.println("committed");
        } catch (RuntimeException error) {
            System.out.println("refused: " + error.getMessage());
        }
    }

    private static long rows(Engine engine, Scan scan) throws Exception {
        Row state = scan.getScanState(engine);
        StructType columns = ScanStateRow.getPhysicalDataReadSchema(state);
        long found = 0;
        try (CloseableIterator<FilteredColumnarBatch> files = scan.getScanFiles(engine)) {
            while (files.hasNext()) {
                try (CloseableIterator<Row> each = files.next().getRows()) {
                    while (each.hasNext()) {
                        found += rows(engine, state, columns, each.next());
                    }
                }
            }
        }
        return found;
    }

    private static long rows(Engine engine, Row state, StructType columns, Row file)
            throws Exception {
        CloseableIterator<FileReadResult> read = engine.getParquetHandler().readParquetFiles(
            Utils.singletonCloseableIterator(InternalScanFileUtils.getAddFileStatus(file)),
            columns, Optional.empty());
        long found = 0;
        try (CloseableIterator<FilteredColumnarBatch> batches = Scan.transformPhysicalData(
                engine, state, file, read.map(FileReadResult::getData))) {
            while (batches.hasNext()) {
                found += batches.next().getData().getSize();
            }
        }
        return found;
    }
}
