"""Export versions of a table as a Delta table of its own."""
