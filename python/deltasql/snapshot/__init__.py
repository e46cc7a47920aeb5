"""A table at one version: its metadata, its files, and the files a predicate can match."""
