"""Compare a table's log with SQL, its data files with its log, and repair a published log."""
