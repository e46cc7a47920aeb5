"""Who manages a table, the database or its log: follow, cutover, rollback, foreign commits."""
