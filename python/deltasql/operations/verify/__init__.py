"""Verify the data files of a table against the log."""
