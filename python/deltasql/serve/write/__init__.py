"""Requests that write: files, changed rows, batches of streams, and commits of delta-spark."""
