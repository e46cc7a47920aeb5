package io.deltasql.spark;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Properties;
import java.util.regex.Pattern;

/** The releases of Spark on which this jar runs. */
final class SparkRelease {
    private static final Pattern SUPPORTED = Pattern.compile("4\\.[0-3]([.-].*)?");
    private static final String FOUND = found();

    private SparkRelease() {}

    /** Throw if this Spark is not supported; `part` is the part of the jar that is used. */
    static void check(String part) {
        if (FOUND != null && !SUPPORTED.matcher(FOUND).matches()) {
            throw new DeltaSqlException(
                part + " runs on Spark 4.0 to 4.3, this is Spark " + FOUND + ": use another release "
                    + "of Spark, or of deltasql.", List.of());
        }
    }

    /** Return whether this is at least the given release. */
    static boolean isAtLeast(int major, int minor) {
        if (FOUND == null) {
            return false;
        }
        String[] parts = FOUND.split("\\.");
        int found = Integer.parseInt(parts[0]);
        return found > major || found == major && Integer.parseInt(parts[1]) >= minor;
    }

    /**
     * Return the release, or null without Spark. All releases have this file in their jars, and not
     * all have the class that reads it.
     */
    private static String found() {
        ClassLoader loader = SparkRelease.class.getClassLoader();
        try (InputStream file = loader.getResourceAsStream("spark-version-info.properties")) {
            if (file == null) {
                return null;
            }
            Properties properties = new Properties();
            properties.load(file);
            return properties.getProperty("version");
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
