"""MERGE: plan, join the rows, write the files."""
