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
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;

/**
 * A client of the local service of one catalog (docs/internals/service-protocol.md).
 *
 * The service is given by its service file. Without one, the client looks for the file of
 * `deltasql serve`, and otherwise starts a service of its own, which ends with this JVM. A service
 * that is started again is found, also at another address.
 */
final class Service {
    static final ObjectMapper JSON = new ObjectMapper();
    private static final int ATTEMPTS = 5;
    private static final Pattern PASSWORD =
        Pattern.compile("deltasql://\\w+/[^/@:]*:(?!\\$\\{)[^/@]+@.*");

    private final HttpClient client;
    private final String catalog;
    private final String file;
    private final String python;
    private final Service parent;
    private final String transaction;
    private volatile ServiceFile access;
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
        this.access = find();
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
        return only(request, send(request, body, ConnectException.class));
    }

    /**
     * Send a request that may be sent twice: a commit, whose transaction id makes it happen once.
     * If the response is lost, send the request again, also to a service that was started again.
     */
    JsonNode askAgain(String request, Map<String, ?> body) {
        return only(request, send(request, body, IOException.class));
    }

    /** Send a request and return the lines of its response, which must end with a line `end`. */
    List<JsonNode> lines(String request, Map<String, ?> body) {
        List<JsonNode> found = send(request, body, ConnectException.class);
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
        ServiceFile used = access;
        try {
            InputStream held = open(used, "transaction_hold", Map.of("transaction", id));
            while (held.read() > '\n') { // the first line says that the service holds it
            }
            return held;
        } catch (IOException error) {
            throw lost(used, error);
        }
    }

    /**
     * Send a request and return the lines of its response. After an error of the class `repeated`,
     * send the request again. With ConnectException, this is safe for all requests: the connection
     * was refused, so no service has read the request.
     */
    private List<JsonNode> send(
            String request, Map<String, ?> body, Class<? extends IOException> repeated) {
        if (parent != null) {
            Map<String, Object> inside = new HashMap<>(body);
            inside.put("transaction", transaction);
            return parent.send(request, inside, repeated);
        }
        for (int attempt = 1; ; attempt++) {
            ServiceFile used = access;
            try {
                return response(used, request, body);
            } catch (IOException error) {
                if (!repeated.isInstance(error) || attempt == ATTEMPTS) {
                    throw lost(used, error);
                }
                if (!reconnect(used)) {
                    sleep(100L << attempt);
                }
            } catch (DeltaSqlException error) {
                // A service that was started again at the same address has another token.
                if (!error.is("WrongToken") || attempt == ATTEMPTS || !reconnect(used)) {
                    throw error;
                }
            }
        }
    }

    /** Send a request once and return the lines of its response; throw the error in a line. */
    private List<JsonNode> response(ServiceFile used, String request, Map<String, ?> body)
            throws IOException {
        List<JsonNode> found = new ArrayList<>();
        try (InputStream response = open(used, request, body)) {
            try (BufferedReader reader = new BufferedReader(
                    new InputStreamReader(response, StandardCharsets.UTF_8))) {
                for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                    found.add(JSON.readTree(line));
                }
            }
        }
        for (JsonNode line : found) {
            if (line.has("error")) {
                throw error(line.get("error"));
            }
        }
        return found;
    }

    private InputStream open(ServiceFile used, String request, Map<String, ?> body)
            throws IOException {
        byte[] content;
        try {
            content = JSON.writeValueAsBytes(body);
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
        if (content.length > used.largestRequest()) {
            throw new DeltaSqlException(
                "The request " + request + " to the deltasql service has " + content.length
                    + " bytes, and the limit is " + used.largestRequest()
                    + ": write fewer files in one commit.", List.of());
        }
        HttpRequest sent = HttpRequest
            .newBuilder(URI.create(used.address() + "/v" + ServiceFile.PROTOCOL + "/" + request))
            .header("Authorization", "Bearer " + used.token())
            .POST(HttpRequest.BodyPublishers.ofByteArray(content))
            .build();
        try {
            return client.send(sent, HttpResponse.BodyHandlers.ofInputStream()).body();
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new DeltaSqlException("Interrupted while waiting for the deltasql service.", error);
        }
    }

    private static DeltaSqlException lost(ServiceFile used, IOException error) {
        return new DeltaSqlException(
            "The deltasql service at " + used.address() + " does not respond: start it again with "
                + "`deltasql serve`, or restart the Spark session if it started the service.",
            error);
    }

    /** Return the exception for an error in a response. */
    static DeltaSqlException error(JsonNode error) {
        List<String> types = new ArrayList<>();
        error.get("types").forEach(each -> types.add(each.asText()));
        String help = error.get("help").asText();
        String message = error.get("type").asText() + ": " + error.get("message").asText();
        return new DeltaSqlException(help.isEmpty() ? message : message + "\nHelp: " + help, types);
    }

    /** Return the service that runs now; start one if the configuration names no service file. */
    private ServiceFile find() {
        if (file != null) {
            return ServiceFile.read(Path.of(file));
        }
        Path path = ServiceFile.defaultPath(catalog);
        if (Files.exists(path)) {
            ServiceFile found = ServiceFile.read(path);
            if (found.isAlive()) {
                return found;
            }
        }
        return start();
    }

    /** Look for the service again; return whether another one than `used` runs now. */
    private synchronized boolean reconnect(ServiceFile used) {
        boolean isOwn = process != null && process.isAlive();
        if (access == used && !isOwn) {
            try {
                access = find();
            } catch (DeltaSqlException error) {
                if (file == null) {
                    throw error; // it did not start
                }
                return false; // a service that is being started again has no file yet
            }
        }
        return !access.equals(used);
    }

    /** Start a service. It ends when its standard input is closed, at the latest with this JVM. */
    private ServiceFile start() {
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
            return ServiceFile.of(access, "The output of " + python);
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
