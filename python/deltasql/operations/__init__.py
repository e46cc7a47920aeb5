"""The operations on a table (WRITE, DELETE, MERGE, ALTER …). Each stages its actions."""
