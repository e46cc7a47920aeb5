"""The Delta Lake transaction log, in a database you already run."""
