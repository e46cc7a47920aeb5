package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import io.delta.storage.AzureLogStore;
import io.delta.storage.CloseableIterator;
import io.delta.storage.GCSLogStore;
import io.delta.storage.HDFSLogStore;
import io.delta.storage.LogStore;
import io.delta.storage.S3SingleDriverLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.FileAlreadyExistsException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * Delta's access to `_delta_log`, in which the database decides the commits of registered tables.
 *
 * `spark.delta.logStore.file.impl = io.deltasql.spark.DeltaSqlLogStore` makes delta-spark use this
 * class for all tables whose paths begin with `file:`. The service commits a version of a table of
 * its catalog, and publishes it to the log. All other files and tables are left to the LogStore
 * that delta-spark would have used. Delta loads this class, so sessions without Delta do not.
 */
public final class DeltaSqlLogStore extends LogStore {
    private static final Pattern COMMIT = Pattern.compile("\\d{20}\\.json");
    private static final String URI = "deltasql.logStore.uri";
    private static final String SERVICE = "deltasql.logStore.service";
    private static final Map<List<String>, Service> SERVICES = new ConcurrentHashMap<>();

    private final Map<String, LogStore> others = new ConcurrentHashMap<>();

    public DeltaSqlLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public CloseableIterator<String> read(Path path, Configuration hadoopConf) throws IOException {
        try {
            return other(path).read(path, hadoopConf);
        } catch (FileNotFoundException error) {
            if (!isCommit(path) || !publish(path, hadoopConf)) {
                throw error;
            }
            return other(path).read(path, hadoopConf);
        }
    }

    @Override
    public Iterator<FileStatus> listFrom(Path path, Configuration hadoopConf) throws IOException {
        if (isLog(path.getParent())) {
            publish(path, hadoopConf);
        }
        return other(path).listFrom(path, hadoopConf);
    }

    @Override
    public void write(
            Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        // This small request is sent for every commit. With a cached response, a commit to a table
        // that was registered in the meantime would bypass the database.
        if (!isCommit(path) || !publish(path, hadoopConf)) {
            other(path).write(path, actions, overwrite, hadoopConf);
            return;
        }
        if (overwrite) {
            throw new UnsupportedOperationException(
                path + " belongs to a table of a deltasql catalog: a commit is never overwritten.");
        }
        List<String> lines = new ArrayList<>();
        actions.forEachRemaining(lines::add);
        if (!commit(path, lines, hadoopConf)) {
            other(path).write(path, lines.iterator(), false, hadoopConf);
        }
    }

    @Override
    public Path resolvePathOnPhysicalStorage(Path path, Configuration hadoopConf)
            throws IOException {
        return other(path).resolvePathOnPhysicalStorage(path, hadoopConf);
    }

    @Override
    public Boolean isPartialWriteVisible(Path path, Configuration hadoopConf) throws IOException {
        return other(path).isPartialWriteVisible(path, hadoopConf);
    }

    /** Return whether the path is the commit file of a version. */
    private static boolean isCommit(Path path) {
        return isLog(path.getParent()) && COMMIT.matcher(path.getName()).matches();
    }

    private static boolean isLog(Path folder) {
        return folder != null && folder.getName().equals("_delta_log") && folder.getParent() != null;
    }

    /**
     * Publish to the log of a file what the database has committed, and return true; return false
     * if the database does not decide the commits of the table.
     */
    private boolean publish(Path path, Configuration hadoopConf) throws IOException {
        Map<String, Object> table = Map.of("location", location(path, hadoopConf));
        return isRegistered(service(hadoopConf).askAgain("log_publish", table));
    }

    /** Commit a version; return false if the database does not decide the table's commits. */
    private boolean commit(Path path, List<String> lines, Configuration hadoopConf)
            throws IOException {
        Map<String, Object> commit = Map.of(
            "location", location(path, hadoopConf),
            "version", Long.valueOf(path.getName().substring(0, 20)),
            "actions", String.join("\n", lines));
        try {
            return isRegistered(service(hadoopConf).askAgain("log_commit", commit));
        } catch (DeltaSqlException error) {
            if (error.is("VersionTakenError")) {
                throw new FileAlreadyExistsException(path.toString());
            }
            throw error;
        }
    }

    private static boolean isRegistered(JsonNode response) {
        return response.get("registered").asBoolean();
    }

    /** Return the URL of the table to whose log a file belongs. */
    private static String location(Path path, Configuration hadoopConf) throws IOException {
        Path root = path.getParent().getParent();
        return root.getFileSystem(hadoopConf).makeQualified(root).toUri().toString();
    }

    /** Return the LogStore that delta-spark would have used for a path. */
    private LogStore other(Path path) {
        String scheme = path.toUri().getScheme();
        String key = scheme == null ? "" : scheme.toLowerCase(Locale.ROOT);
        return others.computeIfAbsent(key, each -> switch (each) {
            case "s3", "s3a", "s3n" -> new S3SingleDriverLogStore(initHadoopConf());
            case "abfs", "abfss", "adl", "wasb", "wasbs" -> new AzureLogStore(initHadoopConf());
            case "gs" -> new GCSLogStore(initHadoopConf());
            default -> new HDFSLogStore(initHadoopConf());
        });
    }

    /** Return the service; all tables of a JVM share it. */
    private static Service service(Configuration hadoopConf) {
        // The constructor is called by reflection, so the message would be hidden in a stack there.
        SparkRelease.check("The LogStore of deltasql");
        // `getRaw` leaves ${VARIABLE} in the URI as it is.
        String uri = hadoopConf.getRaw(URI);
        String file = hadoopConf.getRaw(SERVICE);
        if (uri == null && file == null) {
            throw new IllegalArgumentException(
                "Set spark.hadoop." + URI + " to a catalog, such as "
                    + "deltasql://sqlite//lake/catalog.db, or spark.hadoop." + SERVICE
                    + " to a service file.");
        }
        Service.rejectPassword("spark.hadoop." + URI, uri);
        return SERVICES.computeIfAbsent(
            Arrays.asList(uri, file), key -> new Service(uri, file, Service.python()));
    }
}
