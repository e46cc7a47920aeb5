package io.deltasql.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermission;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.List;
import java.util.Set;

/** The content of a service file: where a service listens, and the token that clients send. */
record ServiceFile(String address, String token, long pid, long largestRequest) {
    static final int PROTOCOL = 2;
    private static final Set<PosixFilePermission> OF_OTHERS = Set.of(
        PosixFilePermission.GROUP_READ, PosixFilePermission.GROUP_WRITE,
        PosixFilePermission.OTHERS_READ, PosixFilePermission.OTHERS_WRITE);

    static ServiceFile read(Path path) {
        try {
            if (Files.getPosixFilePermissions(path).stream().anyMatch(OF_OTHERS::contains)) {
                throw new DeltaSqlException(
                    "The service file " + path + " can be read by other users: its mode must be "
                        + "0600.", List.of());
            }
            return of(Service.JSON.readTree(Files.readString(path)), path.toString());
        } catch (IOException | UnsupportedOperationException error) {
            throw new DeltaSqlException(
                "The service file " + path + " cannot be read: start the service with "
                    + "`deltasql serve --service " + path + "`.", error);
        }
    }

    /** Return the content of a service file; `source` names it in errors. */
    static ServiceFile of(JsonNode content, String source) {
        if (!content.has("address") || !content.has("token") || !content.has("protocol")) {
            throw new DeltaSqlException(
                source + " is not a service file of deltasql: `deltasql serve` writes one.",
                List.of());
        }
        if (content.get("protocol").asInt() != PROTOCOL) {
            String release = content.has("release")
                ? "deltasql " + content.get("release").asText() : "an older deltasql";
            throw new DeltaSqlException(
                "The service of " + release + " at " + content.get("address").asText()
                    + " has protocol " + content.get("protocol").asText() + ", and this jar has "
                    + "protocol " + PROTOCOL + ": use the jar of the service's deltasql, whose path "
                    + "deltasql.spark.jar() returns, or start the service with the deltasql of "
                    + "this jar.", List.of());
        }
        return new ServiceFile(
            content.get("address").asText(),
            content.get("token").asText(),
            content.path("pid").asLong(),
            content.path("largest_request").asLong(Long.MAX_VALUE));
    }

    /** Return whether the process of the service runs. */
    boolean isAlive() {
        return ProcessHandle.of(pid).map(ProcessHandle::isAlive).orElse(false);
    }

    /** Return the file that `deltasql serve` writes for a catalog by default. */
    static Path defaultPath(String catalog) {
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
}
