"""Runs one behaviour suite with every supported database, store and engine: `make test-matrix`."""
