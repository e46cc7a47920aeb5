package io.deltasql.spark;

import java.util.Set;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.hive.thriftserver.ui.ExecutionInfo;
import org.apache.spark.sql.hive.thriftserver.ui.HiveThriftServer2AppStatusStore;
import org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServerSessionClosed;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The session of a client of Spark Connect or of the Thrift server, whose statement runs in the
 * thread that creates this object. Both servers send an event when a session ends.
 */
final class ServerSession {
    private static final String CONNECT_SESSION_CLOSED =
        "org.apache.spark.sql.connect.service.SparkListenerConnectSessionClosed";
    private static final String THRIFT_EVENT =
        "org.apache.spark.sql.hive.thriftserver.ui.SparkListenerThriftServer";

    private final SparkContext context;
    /** On Spark Connect, one of them contains the id of the client's session. */
    private final Set<String> jobTags;
    /** On the Thrift server, the id of the statement. */
    private final String jobGroup;
    private String thriftSession;

    ServerSession(SparkContext context) {
        this.context = context;
        this.jobTags = CollectionConverters.asJava(context.getJobTags());
        this.jobGroup = context.getLocalProperty("spark.jobGroup.id");
    }

    /** Return whether an event says that this session has ended. */
    boolean isEndedBy(SparkListenerEvent event) {
        String kind = event.getClass().getName();
        if (kind.equals(CONNECT_SESSION_CLOSED)) {
            return jobTags.stream().anyMatch(
                each -> each.contains("_Session_" + connectSession(event) + "_"));
        }
        if (kind.startsWith(THRIFT_EVENT) && jobGroup != null) {
            if (thriftSession == null) {
                // Spark forgets statements of long ago, so look it up at the next event.
                thriftSession = Thrift.sessionOf(context, jobGroup);
            }
            return thriftSession != null && thriftSession.equals(Thrift.closedBy(event));
        }
        return false;
    }

    /** Return the session in an event of Connect, whose classes are in a jar of its own. */
    private static Object connectSession(SparkListenerEvent event) {
        try {
            return event.getClass().getMethod("sessionId").invoke(event);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Uses classes of the Thrift server, which not every Spark has. */
    private static final class Thrift {
        /** Return the session of a statement; null if Spark does not know the statement. */
        static String sessionOf(SparkContext context, String statement) {
            Option<ExecutionInfo> found =
                new HiveThriftServer2AppStatusStore(context.statusStore().store())
                    .getExecution(statement);
            return found.isDefined() ? found.get().sessionId() : null;
        }

        /** Return the session that an event says has ended; null if it is another event. */
        static String closedBy(SparkListenerEvent event) {
            return event instanceof SparkListenerThriftServerSessionClosed closed
                ? closed.sessionId() : null;
        }
    }
}
