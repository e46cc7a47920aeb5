"""The authority of a table, SQL or its log: follow, cutover, rollback, foreign commits."""
