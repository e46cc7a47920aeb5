package io.deltasql.spark;

import java.util.List;

/**
 * An error of the service, or of the connection to it.
 *
 * PySpark shows an IllegalArgumentException by its message alone, and most others with a stack.
 */
public final class DeltaSqlException extends IllegalArgumentException {
    private final List<String> types;

    DeltaSqlException(String message, List<String> types) {
        super(message);
        this.types = types;
    }

    DeltaSqlException(String message, Throwable cause) {
        super(message, cause);
        this.types = List.of();
    }

    /** Return whether the error is of this class of deltasql, or of one of its subclasses. */
    public boolean is(String type) {
        return types.contains(type);
    }
}
