"""VERIFY: compare the data files of a table with its log."""
