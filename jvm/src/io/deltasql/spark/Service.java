package io.deltasql.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Pattern;

/**
 * A client of the local service of one catalog (docs/internals/service-protocol.md).
 *
 * The service is given by its service file. Without one, the client looks for the file of
 * `deltasql serve`, and otherwise starts a service of its own, which ends with this JVM.
 */
final class Service {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final int PROTOCOL = 1;
    private static final int ATTEMPTS = 5;
    private static final Pattern PASSWORD =
        Pattern.compile("deltasql://\\w+/[^/@:]*:(?!\\$\\{)[^/@]+@.*");
    private static final Set<PosixFilePermission> OF_OTHERS = Set.of(
        PosixFilePermission.GROUP_READ, PosixFilePermission.GROUP_WRITE,
        PosixFilePermission.OTHERS_READ, PosixFilePermission.OTHERS_WRITE);

    private final HttpClient client;
    private final String catalog;
    private final String file;
    private final String python;
    private final Service parent;
    private final String transaction;
    private String address;
    private String token;
    private Process process;

    /** `catalog` is a URI or a name, `file` the service file; one of them may be null. */
    Service(String catalog, String file, String python) {
        this.client = HttpClient.newBuilder()
            .version(HttpClient.Version.HTTP_1_1)
            .proxy(HttpClient.Builder.NO_PROXY)
            .connectTimeout(Duration.ofSeconds(10))
            .build();
        this.catalog = catalog;
        this.file = file;
        this.python = python;
        this.parent = null;
        this.transaction = null;
        connect();
    }

    /** Return the Python that runs a service which this JVM starts. */
    static String python() {
        String python = System.getenv("PYSPARK_PYTHON");
        return python == null ? "python3" : python;
    }

    /** Raise if the URI in a Spark option contains a password; Spark shows its options. */
    static void rejectPassword(String option, String uri) {
        if (uri != null && PASSWORD.matcher(uri).matches()) {
            throw new IllegalArgumentException(
                option + " contains a password, and Spark shows its options: write ${VARIABLE} "
                    + "instead, or the name of a catalog in the configuration.");
        }
    }

    private Service(Service parent, String transaction) {
        this.client = parent.client;
        this.catalog = parent.catalog;
        this.file = parent.file;
        this.python = parent.python;
        this.parent = parent;
        this.transaction = transaction;
    }

    /** Return a client of the same service, all requests of which belong to a transaction. */
    Service inTransaction(String id) {
        return new Service(outside(), id);
    }

    /** Return the client whose requests belong to no transaction. */
    Service outside() {
        return parent == null ? this : parent;
    }

    /** Send a request and return its response, which is one object. */
    JsonNode call(String request, Map<String, ?> body) {
        return only(request, send(request, body));
    }

    /**
     * Send a request that may be sent twice: a commit, whose transaction id makes it happen once.
     * If the response is lost, send the request again, also to a service that was started again.
     */
    JsonNode askAgain(String request, Map<String, ?> body) {
        for (int attempt = 1; ; attempt++) {
            try {
                return only(request, send(request, body));
            } catch (DeltaSqlException error) {
                boolean isLost = error.getCause() instanceof IOException;
                if (!isLost || attempt == ATTEMPTS) {
                    throw error;
                }
                sleep(100L << attempt);
                restart();
            }
        }
    }

    /** Send a request and return the lines of its response, which must end with a line `end`. */
    List<JsonNode> lines(String request, Map<String, ?> body) {
        List<JsonNode> found = send(request, body);
        if (found.isEmpty() || !found.get(found.size() - 1).has("end")) {
            throw new DeltaSqlException(
                "The response of the deltasql service to " + request + " is not complete.", List.of());
        }
        return found;
    }

    private JsonNode only(String request, List<JsonNode> lines) {
        if (lines.size() != 1) {
            throw new DeltaSqlException(
                "The deltasql service sent no response to " + request + ".", List.of());
        }
        return lines.get(0);
    }

    /**
     * Hold a transaction: the service rolls it back when the returned stream is closed, at the
     * latest with this JVM.
     */
    InputStream hold(String id) {
        try {
            InputStream held = open("transaction_hold", Map.of("transaction", id));
            while (held.read() > '\n') { // the first line says that the service holds it
            }
            return held;
        } catch (IOException error) {
            throw lost(error);
        }
    }

    private List<JsonNode> send(String request, Map<String, ?> body) {
        if (parent != null) {
            Map<String, Object> inside = new HashMap<>(body);
            inside.put("transaction", transaction);
            return parent.send(request, inside);
        }
        List<JsonNode> found = new ArrayList<>();
        try (InputStream response = open(request, body)) {
            try (BufferedReader reader = new BufferedReader(
                    new InputStreamReader(response, StandardCharsets.UTF_8))) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    found.add(JSON.readTree(line));
                }
            }
        } catch (IOException error) {
            // A refused connection means that nobody has read the request.
            if (error instanceof ConnectException && restart()) {
                return send(request, body);
            }
            throw lost(error);
        }
        for (JsonNode line : found) {
            if (line.has("error")) {
                throw error(line.get("error"));
            }
        }
        return found;
    }

    private InputStream open(String request, Map<String, ?> body) throws IOException {
        HttpRequest sent;
        try {
            sent = HttpRequest.newBuilder(URI.create(address + "/v" + PROTOCOL + "/" + request))
                .header("Authorization", "Bearer " + token)
                .POST(HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body)))
                .build();
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
        try {
            return client.send(sent, HttpResponse.BodyHandlers.ofInputStream()).body();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new DeltaSqlException("Interrupted while waiting for the deltasql service.", error);
        }
    }

    private DeltaSqlException lost(IOException error) {
        return new DeltaSqlException(
            "The deltasql service at " + address + " does not respond: start it again with "
                + "`deltasql serve`, or restart the Spark session if it started the service.",
            error);
    }

    private static DeltaSqlException error(JsonNode error) {
        List<String> types = new ArrayList<>();
        error.get("types").forEach(each -> types.add(each.asText()));
        String help = error.get("help").asText();
        String message = error.get("type").asText() + ": " + error.get("message").asText();
        return new DeltaSqlException(help.isEmpty() ? message : message + "\nHelp: " + help, types);
    }

    private synchronized void connect() {
        JsonNode access = null;
        if (file != null) {
            access = read(Path.of(file));
        } else if (Files.exists(defaultFile(catalog))) {
            access = read(defaultFile(catalog));
            if (!isAlive(access)) {
                access = null;
            }
        }
        use(access == null ? start() : access);
    }

    /** Start the service again if this client had started it and it has ended. */
    private synchronized boolean restart() {
        if (parent != null) {
            return parent.restart();
        }
        boolean hasEnded = process != null && !process.isAlive();
        if (hasEnded) {
            connect();
        }
        return hasEnded;
    }

    private void use(JsonNode access) {
        if (access.path("protocol").asInt() != PROTOCOL) {
            throw new DeltaSqlException(
                "The deltasql service has protocol " + access.path("protocol").asText()
                    + ", this jar has " + PROTOCOL + ": use the jar of the same deltasql release.",
                List.of());
        }
        address = access.get("address").asText();
        token = access.get("token").asText();
    }

    private static boolean isAlive(JsonNode access) {
        return ProcessHandle.of(access.path("pid").asLong()).map(ProcessHandle::isAlive).orElse(false);
    }

    private static JsonNode read(Path path) {
        try {
            if (Files.getPosixFilePermissions(path).stream().anyMatch(OF_OTHERS::contains)) {
                throw new DeltaSqlException(
                    "The service file " + path + " can be read by other users: its mode must be "
                        + "0600.", List.of());
            }
            return JSON.readTree(Files.readString(path));
        } catch (IOException | UnsupportedOperationException error) {
            throw new DeltaSqlException(
                "The service file " + path + " cannot be read: start the service with "
                    + "`deltasql serve --service " + path + "`.", error);
        }
    }

    /** Return the file that `deltasql serve` writes for a catalog by default. */
    static Path defaultFile(String catalog) {
        String runtime = System.getenv("XDG_RUNTIME_DIR");
        String shared = System.getenv("TMPDIR");
        Path folder = runtime != null && !runtime.isEmpty()
            ? Path.of(runtime, "deltasql")
            : Path.of(shared != null && !shared.isEmpty() ? shared : "/tmp",
                "deltasql-" + System.getProperty("user.name"));
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256")
                .digest(catalog.getBytes(StandardCharsets.UTF_8));
            StringBuilder name = new StringBuilder();
            for (int index = 0; index < 8; index++) {
                name.append(String.format("%02x", digest[index]));
            }
            return folder.resolve(name + ".json");
        } catch (NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Start a service. It ends when its standard input is closed, at the latest with this JVM. */
    private JsonNode start() {
        try {
            process = new ProcessBuilder(python, "-m", "deltasql.serve")
                .redirectError(ProcessBuilder.Redirect.INHERIT)
                .start();
            process.getOutputStream().write((catalog + "\n").getBytes(StandardCharsets.UTF_8));
            process.getOutputStream().flush();
            BufferedReader reader = new BufferedReader(
                new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = reader.readLine();
            JsonNode access = line == null ? null : JSON.readTree(line);
            if (access == null || access.has("error")) {
                throw new DeltaSqlException(
                    "The deltasql service did not start with " + python + ": "
                        + (access == null ? "deltasql is not installed there" // stderr says more
                            : access.get("error").asText()), List.of());
            }
            return access;
        } catch (IOException error) {
            throw new DeltaSqlException(
                "The deltasql service did not start: set PYSPARK_PYTHON to a Python that has "
                    + "deltasql, " + python + " cannot be run.", error);
        }
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static List<String> texts(JsonNode array) {
        List<String> found = new ArrayList<>();
        for (Iterator<JsonNode> each = array.elements(); each.hasNext(); ) {
            JsonNode value = each.next();
            found.add(value.isNull() ? null : value.asText());
        }
        return found;
    }
}
