package io.deltasql.spark;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The files that a task wrote. */
record WrittenFiles(List<WrittenFile> files) implements WriterCommitMessage {
    /** A file, and its partition values as strings, in which dates and timestamps are numbers. */
    record WrittenFile(String name, List<String> partition) implements Serializable {}
}
