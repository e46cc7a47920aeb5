"""SQL expressions that users write, resolved against a table."""
