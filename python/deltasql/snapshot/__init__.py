"""A table at one version: its definition, its files, and the scan of a predicate."""
