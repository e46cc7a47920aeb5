package io.deltasql.spark;

import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * Hadoop's settings for the tasks of a write.
 *
 * Spark's SerializableConfiguration also sends where each of about 1,100 settings comes from, each
 * compressed on its own. Spark serializes a job twice, and each task reads it. Without the sources,
 * an INSERT of 100 rows takes 0.81 times as long (docs/benchmarks/README.md).
 */
final class HadoopSettings implements Serializable {
    private transient Configuration value;

    HadoopSettings(Configuration value) {
        this.value = value;
    }

    Configuration value() {
        return value;
    }

    private void writeObject(ObjectOutputStream out) throws IOException {
        Map<String, String> settings = new HashMap<>();
        value.forEach(each -> settings.put(each.getKey(), each.getValue()));
        out.writeObject(settings);
    }

    @SuppressWarnings("unchecked")
    private void readObject(ObjectInputStream in) throws IOException, ClassNotFoundException {
        value = new Configuration(false);
        ((Map<String, String>) in.readObject()).forEach(value::set);
    }
}
