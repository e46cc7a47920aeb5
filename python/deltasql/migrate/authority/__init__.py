"""Which side may commit to a table, and moving it: follow, cutover, rollback."""
