package io.deltasql.spark;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The files that a task wrote, and the rows that break a rule; null if the table has no rules. */
record WrittenFiles(List<WrittenFile> files, RowChecks.BrokenRows broken)
        implements WriterCommitMessage {
    WrittenFiles(List<WrittenFile> files) {
        this(files, null);
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
