package io.deltasql.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * The files that a task wrote, the rows that break a rule, or null if the table has no rules, and the
 * error for rows that the statement must not write, or null.
 */
record WrittenFiles(
        List<WrittenFile> files, RowChecks.BrokenRows broken, DeltaSqlException refused)
        implements WriterCommitMessage {
    WrittenFiles(List<WrittenFile> files) {
        this(files, null, null);
    }

    /** A file, and its partition values as strings, in which dates and timestamps are numbers. */
    record WrittenFile(String name, List<String> partition) implements Serializable {}

    /** Return the files as they are sent to the service. */
    List<Map<String, Object>> json() {
        List<Map<String, Object>> found = new ArrayList<>();
        for (WrittenFile file : files) {
            found.add(Map.of("name", file.name(), "partition", file.partition()));
        }
        return found;
    }
}
