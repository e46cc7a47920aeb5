"""A table at one version: its metadata, its files, and scans for a predicate."""
