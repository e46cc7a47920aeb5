"""MERGE: plan it, join the rows, write the files."""
