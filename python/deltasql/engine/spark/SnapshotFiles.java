package deltasql;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.function.Function;
import java.util.function.IntFunction;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Option;
import scala.collection.immutable.ArraySeq;
import scala.collection.immutable.Seq;

/**
 * A FileIndex of the files of one snapshot.
 *
 * Spark compiles this source when a table is first read, with Janino, the compiler that Spark uses
 * for its own queries. Janino supports neither lambdas nor type inference. The class unpacks the
 * data that file_index.py packs. The jar of the Spark catalog is compiled with the same source.
 */
public final class SnapshotFiles implements FileIndex {
    /** Minimum number of files for which unpacking in parallel is faster. */
    private static final int MANY = 5000;

    private String name;
    private Path root;
    private StructType schema;
    private Object[][] values;
    private byte[] packed;
    private byte[] prefix;
    private long bytes;
    private Function prune;
    private int count;
    private int start;
    private FileStatus[] files;

    /** Receive the packed partitions and files. */
    public void take(byte[] content) {
        packed = content;
    }

    /** Receive the packed partitions and files in a file. */
    public void takeFile(String name) throws IOException {
        packed = Files.readAllBytes(new File(name).toPath());
    }

    /** Unpack the data; `prune`, which may be null, returns a byte for each file. */
    public FileIndex open(
            String name, String root, String schemaJson, String prefix, long bytes,
            Function prune) {
        this.name = name;
        this.root = new Path(URI.create(root));
        this.schema = (StructType) DataType.fromJson(schemaJson);
        this.prefix = prefix.getBytes(StandardCharsets.UTF_8);
        this.bytes = bytes;
        this.prune = prune;
        ByteBuffer buffer = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN);
        this.values = unpackedValues(buffer);
        this.count = buffer.getInt();
        this.start = buffer.position();
        this.files = new FileStatus[count];
        return this;
    }

    public Seq listFiles(Seq partitionFilters, Seq dataFilters) {
        boolean[] kept = matching(partitionFilters);
        byte[] wanted = null;
        if (prune != null && !dataFilters.isEmpty()) {
            wanted = (byte[]) prune.apply(dataFilters);
        }
        int[] partitions = partitions();
        int[] counts = new int[values.length];
        boolean[] listed = new boolean[count];
        for (int i = 0; i < count; i++) {
            if (kept[partitions[i]] && (wanted == null || wanted[i] != 0)) {
                listed[i] = true;
                counts[partitions[i]]++;
            }
        }
        unpack(listed);
        FileStatus[][] groups = new FileStatus[values.length][];
        for (int i = 0; i < count; i++) {
            if (listed[i]) {
                int index = partitions[i];
                if (groups[index] == null) {
                    groups[index] = new FileStatus[counts[index]];
                }
                groups[index][groups[index].length - counts[index]--] = files[i];
            }
        }
        ArrayList found = new ArrayList();
        for (int index = 0; index < groups.length; index++) {
            if (groups[index] != null) {
                InternalRow row = new GenericInternalRow(values[index]);
                found.add(PartitionDirectory.apply(row, groups[index]));
            }
        }
        return ArraySeq.unsafeWrapArray(found.toArray());
    }

    public Seq rootPaths() {
        return ArraySeq.unsafeWrapArray(new Object[] {root});
    }

    public String[] inputFiles() {
        boolean[] listed = new boolean[count];
        Arrays.fill(listed, true);
        unpack(listed);
        String[] found = new String[count];
        for (int i = 0; i < count; i++) {
            found[i] = files[i].getPath().toUri().toString();
        }
        return found;
    }

    public void refresh() {}  // a snapshot never changes

    public long sizeInBytes() {
        return bytes;
    }

    public StructType partitionSchema() {
        return schema;
    }

    public Option metadataOpsTimeNs() {
        return Option.empty();
    }

    public String toString() {
        return name;
    }

    /** Return for which partitions all filters are true. Spark does not evaluate these filters again. */
    private boolean[] matching(Seq filters) {
        boolean[] kept = new boolean[values.length];
        Arrays.fill(kept, true);
        for (int number = 0; number < filters.size(); number++) {
            Expression filter = (Expression) filters.apply(number);
            Seq attributes = filter.references().toSeq();
            int[] columns = new int[attributes.size()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = schema.fieldIndex(((Attribute) attributes.apply(i)).name());
            }
            InterpretedMutableProjection condition = new InterpretedMutableProjection(
                ArraySeq.unsafeWrapArray(new Object[] {filter}), attributes);
            for (int index = 0; index < kept.length; index++) {
                if (kept[index]) {
                    Object[] row = new Object[columns.length];
                    for (int i = 0; i < row.length; i++) {
                        row[i] = values[index][columns[i]];
                    }
                    InternalRow answer = condition.apply(new GenericInternalRow(row));
                    kept[index] = !answer.isNullAt(0) && answer.getBoolean(0);
                }
            }
        }
        return kept;
    }

    /** Create the statuses of listed files that do not exist yet; many files in parallel. */
    private synchronized void unpack(final boolean[] listed) {
        final ByteBuffer buffer = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN);
        IntFunction made = new IntFunction() {
            public Object apply(int index) {
                FileStatus before = files[index];
                return before == null && listed[index] ? unpacked(buffer, index) : before;
            }
        };
        if (count < MANY) {
            Arrays.setAll(files, made);
        } else {
            Arrays.parallelSetAll(files, made);
        }
    }

    /** Unpack one file. The layout is: sizes, times, partitions, ends of names, names. */
    FileStatus unpacked(ByteBuffer buffer, int index) {
        int times = start + 8 * count;
        int ends = times + 12 * count;
        int names = ends + 4 * count;
        int first = index == 0 ? 0 : buffer.getInt(ends + 4 * index - 4);
        int length = buffer.getInt(ends + 4 * index) - first;
        byte[] uri = Arrays.copyOf(prefix, prefix.length + length);
        System.arraycopy(packed, names + first, uri, prefix.length, length);
        Path path = new Path(URI.create(new String(uri, StandardCharsets.UTF_8)));
        long size = buffer.getLong(start + 8 * index);
        return new FileStatus(size, false, 1, size, buffer.getLong(times + 8 * index), path);
    }

    private int[] partitions() {
        ByteBuffer buffer = ByteBuffer.wrap(packed).order(ByteOrder.LITTLE_ENDIAN);
        int[] found = new int[count];
        for (int index = 0; index < count; index++) {
            found[index] = buffer.getInt(start + 16 * count + 4 * index);
        }
        return found;
    }

    /** Unpack partition values, row by row. Each value has its length before it; -1 means null. */
    private Object[][] unpackedValues(ByteBuffer buffer) {
        Object[][] found = new Object[buffer.getInt()][schema.length()];
        for (int row = 0; row < found.length; row++) {
            for (int index = 0; index < found[row].length; index++) {
                int length = buffer.getInt();
                if (length >= 0) {
                    byte[] value = new byte[length];
                    buffer.get(value);
                    found[row][index] = typed(value, schema.apply(index).dataType());
                }
            }
        }
        return found;
    }

    /** Return a value in Spark's internal form: dates and timestamps are numbers. */
    public static Object typed(byte[] value, DataType type) {
        if (type instanceof BinaryType) {
            return value;
        }
        if (type instanceof StringType) {
            return UTF8String.fromBytes(value);
        }
        String text = new String(value, StandardCharsets.UTF_8);
        if (type instanceof BooleanType) {
            return Boolean.valueOf(text);
        }
        if (type instanceof ByteType) {
            return Byte.valueOf(text);
        }
        if (type instanceof ShortType) {
            return Short.valueOf(text);
        }
        if (type instanceof IntegerType || type instanceof DateType) {
            return Integer.valueOf(text);
        }
        if (type instanceof FloatType) {
            return Float.valueOf(text);
        }
        if (type instanceof DoubleType) {
            return Double.valueOf(text);
        }
        if (type instanceof DecimalType) {
            DecimalType exact = (DecimalType) type;
            return Decimal.apply(new java.math.BigDecimal(text), exact.precision(), exact.scale());
        }
        return Long.valueOf(text);
    }
}
