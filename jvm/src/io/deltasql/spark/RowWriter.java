package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.ProjectingInternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.ArraySeq;

/**
 * Writes files again with changed rows, or marks the changed rows of files as deleted.
 *
 * All changes of a file arrive in one task, sorted by position. So the file is read once, from the
 * first row to the last, and each row is copied, replaced or left out. If rows are marked, no row is
 * copied, and the file is read only if the old rows are needed.
 */
final class RowWriter implements DeltaWriter<InternalRow> {
    /** Small files are joined until a new file has about this size. */
    private static final long LARGEST = 128L << 20;
    private static final InternalRow DELETE = kind("delete");
    private static final InternalRow INSERT = kind("insert");
    private static final InternalRow BEFORE = kind("update_preimage");
    private static final InternalRow AFTER = kind("update_postimage");
    private static final InternalRow NO_IDS = new GenericInternalRow(2);

    private final OpenWriters files;
    private final OpenWriters changes;
    private final ChangeChecks checks;
    private final RowNumbers.Task numbering;
    private final boolean marks;
    private final boolean keepsIds;
    private final StructType schema;
    private final ProjectingInternalRow columns;
    private final Function<String, OldFile> open;
    private final List<String> replaced = new ArrayList<>();
    private final Map<String, byte[]> marked = new HashMap<>();
    private final JoinedRow joined = new JoinedRow();
    private final JoinedRow withIds = new JoinedRow();
    private final long started = System.nanoTime();
    private UTF8String url;
    private OldFile file;
    private RowVector vector;
    private boolean hasRow;
    private long bytes;
    private long copied;
    private long updated;
    private long deleted;

    /**
     * `changes` is null if the table has no change data feed, `checks` if it has no rules, `numbers`
     * if it has no identity columns. If `marks`, rows are marked as deleted, and files are not written
     * again. If `keepsIds`, files get the ids of the rows as their last two columns.
     */
    RowWriter(
            OpenWriters files, OpenWriters changes, ChangeChecks checks, RowNumbers numbers,
            boolean marks, boolean keepsIds, StructType schema, Function<String, OldFile> open) {
        this.files = files;
        this.changes = changes;
        this.checks = checks;
        this.numbering = numbers == null ? null : numbers.start(this::insertNow);
        this.marks = marks;
        this.keepsIds = keepsIds;
        this.schema = schema;
        this.columns = first(schema);
        this.open = open;
    }

    private static InternalRow kind(String name) {
        return new GenericInternalRow(new Object[] {UTF8String.fromString(name)});
    }

    @Override
    public void delete(InternalRow metadata, InternalRow id) throws IOException {
        if (!moveTo(id)) {
            return; // several source rows of a MERGE may delete the same row
        }
        if (changes != null) {
            change(file.row(), DELETE);
        }
        deleted++;
        leaveRow();
    }

    @Override
    public void update(InternalRow metadata, InternalRow id, InternalRow given) throws IOException {
        if (!moveTo(id)) {
            throw new IllegalStateException("A row of " + url + " is updated twice.");
        }
        if (numbering != null) {
            numbering.checkUpdate(file.row(), given);
        }
        InternalRow wanted = ofTable(given);
        InternalRow row = checks == null ? wanted : checks.updated(file.row(), wanted);
        if (row != null) {
            if (changes != null) {
                change(file.row(), BEFORE);
                change(row, AFTER);
            }
            writeWithIds(row, keepsIds ? new GenericInternalRow(new Object[] {id(file), null}) : null);
        }
        updated++;
        leaveRow();
    }

    @Override
    public void insert(InternalRow given) throws IOException {
        if (numbering == null) {
            insertNow(ofTable(given));
        } else {
            numbering.add(given);
        }
    }

    /** Return only the columns of the table; metadata columns that a statement names follow them. */
    private InternalRow ofTable(InternalRow given) {
        if (given.numFields() == schema.length()) {
            return given;
        }
        columns.project(given);
        return columns;
    }

    /** Return a projection to the first columns of a row, which are those of the schema. */
    static ProjectingInternalRow first(StructType schema) {
        Object[] kept = IntStream.range(0, schema.length()).boxed().toArray(Integer[]::new);
        return new ProjectingInternalRow(
            schema, ArraySeq.unsafeWrapArray(kept).toIndexedSeq());
    }

    private void insertNow(InternalRow given) throws IOException {
        InternalRow row = checks == null ? given : checks.inserted(given);
        if (row != null) {
            if (changes != null) {
                change(row, INSERT);
            }
            writeWithIds(row, NO_IDS);
        }
    }

    /** Write a row with its id and commit version; if they are null, the commit assigns them. */
    private void writeWithIds(InternalRow row, InternalRow ids) throws IOException {
        files.write(keepsIds ? withIds.apply(row, ids) : row);
    }

    private static Object id(OldFile file) {
        InternalRow ids = file.ids();
        return ids.isNullAt(0) ? null : ids.getLong(0);
    }

    private void change(InternalRow row, InternalRow kind) throws IOException {
        changes.write(joined.apply(row, kind));
    }

    /** Copy the rows before a position; return whether the file still has the row there. */
    private boolean moveTo(InternalRow id) throws IOException {
        UTF8String wanted = id.getUTF8String(0);
        if (!wanted.equals(url)) {
            finishFile();
            url = wanted.clone();
            startFile();
        }
        long position = id.getLong(1);
        while (hasRow && file.position() < position) {
            copy();
        }
        if (vector != null && !vector.add(position)) {
            return false;
        }
        return file == null || hasRow && file.position() == position;
    }

    private void startFile() throws IOException {
        if (marks) {
            vector = new RowVector();
        }
        if (marks && changes == null && checks == null && numbering == null && !keepsIds) {
            return; // the old rows are not needed
        }
        file = open.apply(url.toString());
        hasRow = file.next();
        if (!marks) {
            replaced.add(url.toString());
            if (bytes + file.size() > LARGEST) {
                files.finish();
                bytes = 0;
            }
            bytes += file.size();
        }
    }

    private void copy() throws IOException {
        if (!marks) {
            writeWithIds(file.row(), keepsIds ? file.ids() : null);
            copied++;
        }
        hasRow = file.next();
    }

    private void leaveRow() throws IOException {
        if (file != null) {
            hasRow = file.next();
        }
    }

    private void finishFile() throws IOException {
        while (!marks && file != null && hasRow) {
            copy();
        }
        if (vector != null) {
            marked.put(url.toString(), vector.encoded());
            vector = null;
        }
        closeFile();
    }

    private void closeFile() throws IOException {
        if (file != null) {
            file.close();
            file = null;
            hasRow = false;
        }
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
        if (numbering != null) {
            numbering.flush();
        }
        finishFile();
        files.finish();
        WrittenFiles changeData = new WrittenFiles(List.of());
        if (changes != null) {
            changes.finish();
            changeData = changes.written(null, null);
        }
        return new RowChanges(
            files.written(
                checks == null ? null : checks.broken(),
                numbering == null ? null : numbering.refused()),
            changeData, replaced, marked,
            copied, updated, deleted, (System.nanoTime() - started) / 1_000_000);
    }

    @Override
    public void abort() throws IOException {
        files.abort();
        if (changes != null) {
            changes.abort();
        }
    }

    @Override
    public void close() throws IOException {
        closeFile();
    }
}
