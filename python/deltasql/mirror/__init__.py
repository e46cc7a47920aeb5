"""Publishing ratified commits as a `_delta_log` that every Delta reader understands."""
