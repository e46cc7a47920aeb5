package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** The micro-batches of a table; the service decides which files each of them contains. */
final class TableStream implements MicroBatchStream, SupportsTriggerAvailableNow {
    private final Service service;
    private final Map<String, Object> request;
    private final StructType schema;
    private final StructType columns;
    private Long lastVersion;
    private ChangedFiles batch;

    /** `request` names the stream: its table, the version of its columns, and its options. */
    TableStream(
            Service service, Map<String, Object> request, StructType schema, StructType columns) {
        this.service = service.outside(); // a stream is not part of a transaction
        this.request = request;
        this.schema = schema;
        this.columns = columns;
    }

    @Override
    public Offset initialOffset() {
        return new StreamOffset(ask("stream_start", Map.of()).get("offset"));
    }

    @Override
    public Offset deserializeOffset(String json) {
        return StreamOffset.parsed(json);
    }

    /** Return no limit: the service limits the batches by the options of the stream. */
    @Override
    public ReadLimit getDefaultReadLimit() {
        return ReadLimit.maxFiles(Integer.MAX_VALUE);
    }

    @Override
    public void prepareForTriggerAvailableNow() {
        lastVersion = ask("stream_latest", Map.of()).get("version").asLong();
    }

    @Override
    public Offset reportLatestOffset() {
        return new StreamOffset(ask("stream_latest", Map.of()).get("offset"));
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
        Map<String, Object> asked = new HashMap<>();
        asked.put("start", ((StreamOffset) start).content());
        asked.put("all_available", limit instanceof ReadAllAvailable);
        if (lastVersion != null) {
            asked.put("last_version", lastVersion);
        }
        return new StreamOffset(ask("stream_next", asked).get("offset"));
    }

    @Override
    public Offset latestOffset() {
        throw new UnsupportedOperationException("Spark gives the start of the batch.");
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
        Map<String, Object> asked = new HashMap<>(request);
        asked.put("start", ((StreamOffset) start).content());
        asked.put("end", ((StreamOffset) end).content());
        batch = new ChangedFiles(service.lines("stream_files", asked), schema, columns);
        return batch.partitions();
    }

    /** Return readers for the files of the batch, which Spark has planned before. */
    @Override
    public PartitionReaderFactory createReaderFactory() {
        return batch.readers();
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}

    private JsonNode ask(String name, Map<String, Object> asked) {
        Map<String, Object> body = new HashMap<>(request);
        body.putAll(asked);
        return service.askAgain(name, body);
    }
}
