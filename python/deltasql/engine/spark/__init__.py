"""The Spark engine, classic and Connect."""
