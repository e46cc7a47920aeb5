package io.deltasql.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.connector.write.DeltaWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Writes files again with changed rows.
 *
 * All changes of a file arrive in one task, sorted by position. So the file is read once, from the
 * first row to the last, and each row is copied, replaced or left out.
 */
final class RowWriter implements DeltaWriter<InternalRow> {
    /** Small files are joined until a new file has about this size. */
    private static final long LARGEST = 128L << 20;
    private static final InternalRow DELETE = kind("delete");
    private static final InternalRow INSERT = kind("insert");
    private static final InternalRow BEFORE = kind("update_preimage");
    private static final InternalRow AFTER = kind("update_postimage");

    private final OpenWriters files;
    private final OpenWriters changes;
    private final ChangeChecks checks;
    private final Function<String, OldFile> open;
    private final List<String> replaced = new ArrayList<>();
    private final JoinedRow joined = new JoinedRow();
    private final long started = System.nanoTime();
    private UTF8String url;
    private OldFile file;
    private boolean hasRow;
    private long bytes;
    private long copied;
    private long updated;
    private long deleted;

    /** `changes` is null if the table has no change data feed, `checks` if it has no rules. */
    RowWriter(
            OpenWriters files, OpenWriters changes, ChangeChecks checks,
            Function<String, OldFile> open) {
        this.files = files;
        this.changes = changes;
        this.checks = checks;
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
        change(file.row(), DELETE);
        deleted++;
        hasRow = file.next();
    }

    @Override
    public void update(InternalRow metadata, InternalRow id, InternalRow given) throws IOException {
        if (!moveTo(id)) {
            throw new IllegalStateException("A row of " + url + " is updated twice.");
        }
        InternalRow row = checks == null ? given : checks.updated(file.row(), given);
        if (row != null) {
            change(file.row(), BEFORE);
            change(row, AFTER);
            files.write(row);
        }
        updated++;
        hasRow = file.next();
    }

    @Override
    public void insert(InternalRow given) throws IOException {
        InternalRow row = checks == null ? given : checks.inserted(given);
        if (row != null) {
            change(row, INSERT);
            files.write(row);
        }
    }

    private void change(InternalRow row, InternalRow kind) throws IOException {
        if (changes != null) {
            changes.write(joined.apply(row, kind));
        }
    }

    /** Copy the rows before a position; return whether the file still has the row there. */
    private boolean moveTo(InternalRow id) throws IOException {
        UTF8String wanted = id.getUTF8String(0);
        if (file == null || !wanted.equals(url)) {
            finishFile();
            url = wanted.clone();
            file = open.apply(url.toString());
            replaced.add(url.toString());
            if (bytes + file.size() > LARGEST) {
                files.finish();
                bytes = 0;
            }
            bytes += file.size();
            hasRow = file.next();
        }
        long position = id.getLong(1);
        while (hasRow && file.position() < position) {
            copy();
        }
        return hasRow && file.position() == position;
    }

    private void copy() throws IOException {
        files.write(file.row());
        copied++;
        hasRow = file.next();
    }

    private void finishFile() throws IOException {
        while (file != null && hasRow) {
            copy();
        }
        closeFile();
    }

    private void closeFile() throws IOException {
        if (file != null) {
            file.close();
            file = null;
        }
    }

    @Override
    public WriterCommitMessage commit() throws IOException {
        finishFile();
        files.finish();
        WrittenFiles changeData = new WrittenFiles(List.of());
        if (changes != null) {
            changes.finish();
            changeData = changes.written(null);
        }
        return new RowChanges(
            files.written(checks == null ? null : checks.broken()), changeData, replaced, copied, updated, deleted,
            (System.nanoTime() - started) / 1_000_000);
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
