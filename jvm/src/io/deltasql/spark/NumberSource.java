package io.deltasql.spark;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.util.RpcUtils;
import scala.PartialFunction;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Gives the tasks of one write the numbers of identity columns, which it reserves in the service.
 *
 * It runs in the driver, because executors cannot reach the service. Tasks ask it by Spark's own
 * messages between executors and driver. These have only classes of the JDK, because Spark reads
 * them without the classes of added jars.
 */
final class NumberSource implements RpcEndpoint {
    /** Up to this many rows, a write reserves no number that it does not use. */
    private static final long EXACT = 10_000;
    private static final long LARGEST = 1_000_000;

    private final String name;
    private final Service service;
    private final String txnId;
    private final List<RowNumbers.Column> columns;
    private final Map<Integer, Reserved> reserved = new HashMap<>();

    /** Reserved numbers of a column: those not given yet, and how many were given. */
    private static final class Reserved {
        private long next;
        private long left;
        private long given;
    }

    private NumberSource(Service service, String txnId, List<RowNumbers.Column> columns) {
        this.name = name(txnId);
        this.service = service;
        this.txnId = txnId;
        this.columns = columns;
    }

    private static String name(String txnId) {
        return "deltasql-numbers-" + txnId;
    }

    /** Start a source for the write with this id; `columns` are its identity columns. */
    static NumberSource start(Service service, String txnId, List<RowNumbers.Column> columns) {
        NumberSource source = new NumberSource(service, txnId, columns);
        source.rpcEnv().setupEndpoint(source.name, source);
        return source;
    }

    /** Ask the source of a write in the driver for numbers; return the first. */
    static long ask(String txnId, int column, int count) {
        SparkEnv env = SparkEnv.get();
        RpcEndpointRef source = RpcUtils.makeDriverRef(name(txnId), env.conf(), env.rpcEnv());
        return (Long) source.askSync(
            new long[] {column, count}, ClassTag$.MODULE$.apply(Long.class));
    }

    @Override
    public RpcEnv rpcEnv() {
        return SparkEnv.get().rpcEnv();
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        return new AbstractPartialFunction<>() {
            @Override
            public boolean isDefinedAt(Object message) {
                return message instanceof long[];
            }

            @Override
            public BoxedUnit apply(Object message) {
                long[] wanted = (long[]) message;
                try {
                    context.reply(first((int) wanted[0], wanted[1]));
                } catch (RuntimeException error) {
                    context.sendFailure(new IllegalStateException(error.getMessage()));
                }
                return BoxedUnit.UNIT;
            }
        };
    }

    private synchronized long first(int number, long count) {
        RowNumbers.Column column = columns.get(number);
        Reserved found = reserved.computeIfAbsent(number, each -> new Reserved());
        if (found.left < count) {
            // A large write reserves large blocks, so that it asks rarely. This may leave a gap.
            long block = found.given < EXACT
                ? count : Math.max(count, Math.min(found.given, LARGEST));
            found.next = service.askAgain("write_numbers", Map.of(
                "txn_id", txnId, "column", column.name(), "count", block)).get("first").asLong();
            found.left = block;
        }
        long first = found.next;
        found.next += count * column.step();
        found.left -= count;
        found.given += count;
        return first;
    }
}
