"""Commands on the history of tables."""
