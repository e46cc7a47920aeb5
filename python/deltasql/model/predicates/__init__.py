"""Parse predicates and decide which files can contain matching rows."""
