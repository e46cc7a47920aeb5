package io.deltasql.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** A position in a stream, whose content only the service interprets. */
final class StreamOffset extends Offset {
    private final JsonNode content;

    StreamOffset(JsonNode content) {
        this.content = content;
    }

    /** Parse an offset of a checkpoint. */
    static StreamOffset parsed(String json) {
        try {
            return new StreamOffset(Service.JSON.readTree(json));
        } catch (JsonProcessingException error) {
            throw new DeltaSqlException(
                "The checkpoint does not belong to a stream of a deltasql table: its offset is "
                    + json + ".", error);
        }
    }

    JsonNode content() {
        return content;
    }

    @Override
    public String json() {
        return content.toString();
    }
}
