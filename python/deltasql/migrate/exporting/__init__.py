"""Export versions of a table as a separate Delta table."""
