"""CLONE: copy a table, with or without its data files; exports use the same code."""
