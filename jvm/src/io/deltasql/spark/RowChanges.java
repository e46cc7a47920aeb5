package io.deltasql.spark;

import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * What a task of an UPDATE, DELETE or MERGE did: the files that it wrote, the URLs of the files that
 * they replace, the vectors of the files in which it marked rows, by URL, and the numbers of rows.
 */
record RowChanges(
        WrittenFiles files, WrittenFiles changeData, List<String> replaced,
        Map<String, byte[]> marked, long copied, long updated, long deleted, long milliseconds)
        implements WriterCommitMessage {

    /** Return what all tasks did; the time is that of the longest task. */
    static RowChanges sum(WriterCommitMessage[] messages) {
        List<WrittenFiles.WrittenFile> files = new ArrayList<>();
        List<WrittenFiles.WrittenFile> changeData = new ArrayList<>();
        List<String> replaced = new ArrayList<>();
        Map<String, byte[]> marked = new HashMap<>();
        long[] rows = new long[3];
        long milliseconds = 0;
        for (WriterCommitMessage message : messages) {
            if (message instanceof RowChanges each) {
                files.addAll(each.files().files());
                changeData.addAll(each.changeData().files());
                replaced.addAll(each.replaced());
                marked.putAll(each.marked());
                rows[0] += each.copied();
                rows[1] += each.updated();
                rows[2] += each.deleted();
                milliseconds = Math.max(milliseconds, each.milliseconds());
            }
        }
        return new RowChanges(
            new WrittenFiles(files), new WrittenFiles(changeData), replaced, marked, rows[0],
            rows[1], rows[2], milliseconds);
    }

    /** Return the rows of all tasks that break a rule. */
    static List<RowChecks.BrokenRows> broken(WriterCommitMessage[] messages) {
        List<RowChecks.BrokenRows> found = new ArrayList<>();
        for (WriterCommitMessage message : messages) {
            if (message instanceof RowChanges each) {
                found.add(each.files().broken());
            }
        }
        return found;
    }

    /** Throw the error for rows that the statement must not write, if there is one. */
    static void throwRefused(WriterCommitMessage[] messages) {
        for (WriterCommitMessage message : messages) {
            if (message instanceof RowChanges each && each.files().refused() != null) {
                throw each.files().refused();
            }
        }
    }

    boolean isEmpty() {
        return replaced.isEmpty() && marked.isEmpty() && files.files().isEmpty();
    }

    /** Return the changes as they are sent to the service, without the new files. */
    Map<String, Object> json() {
        Map<String, Object> found = new HashMap<>();
        found.put("change_data", changeData.json());
        found.put("replaced", replaced);
        Map<String, String> vectors = new HashMap<>();
        marked.forEach((url, rows) -> vectors.put(url, Base64.getEncoder().encodeToString(rows)));
        found.put("marked", vectors);
        found.put("copied", copied);
        found.put("updated", updated);
        found.put("deleted", deleted);
        found.put("rewrite_ms", milliseconds);
        return found;
    }
}
