package io.deltasql.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import org.roaringbitmap.longlong.Roaring64NavigableMap;

/** The positions of rows of one file, which are encoded as a deletion vector. */
final class RowVector {
    private static final int MAGIC = 1681511377;

    private final Roaring64NavigableMap rows = new Roaring64NavigableMap();

    /** Add a position; return false if the vector has it already. */
    boolean add(long position) {
        if (rows.contains(position)) {
            return false;
        }
        rows.addLong(position);
        return true;
    }

    byte[] encoded() throws IOException {
        rows.runOptimize();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(bytes);
        out.writeInt(Integer.reverseBytes(MAGIC));
        rows.serializePortable(out);
        return bytes.toByteArray();
    }
}
