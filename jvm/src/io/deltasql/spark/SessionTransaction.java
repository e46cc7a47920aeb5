package io.deltasql.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.ref.Cleaner;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;

/**
 * The open transaction of a Spark session.
 *
 * The service rolls the transaction back when its connection is closed. This happens when the
 * session of a client of Spark Connect or of the Thrift server ends, when the session is garbage
 * collected, when the Spark context stops, or when this JVM ends. PySpark may refer to a session
 * until the context stops.
 */
final class SessionTransaction implements AutoCloseable {
    private static final Cleaner CLEANER = Cleaner.create();

    private final Cleaner.Cleanable connection;

    /** `catalog` belongs to the session, and lives as long as it. */
    SessionTransaction(DeltaSqlCatalog catalog, Service service, String id) {
        Connection opened = new Connection(service.hold(id), TableScan.session().sparkContext());
        opened.context.addSparkListener(opened);
        connection = CLEANER.register(catalog, opened);
    }

    @Override
    public void close() {
        connection.clean();
    }

    /** The connection, which must not refer to the catalog: the catalog would never be garbage. */
    private static final class Connection extends SparkListener implements Runnable {
        private final InputStream held;
        private final SparkContext context;
        private final ServerSession session;

        Connection(InputStream held, SparkContext context) {
            this.held = held;
            this.context = context;
            this.session = new ServerSession(context);
        }

        @Override
        public void onApplicationEnd(SparkListenerApplicationEnd end) {
            closeStream();
        }

        @Override
        public void onOtherEvent(SparkListenerEvent event) {
            if (session.isEndedBy(event)) {
                run();
            }
        }

        @Override
        public void run() {
            context.removeSparkListener(this);
            closeStream();
        }

        private void closeStream() {
            try {
                held.close();
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }
}
