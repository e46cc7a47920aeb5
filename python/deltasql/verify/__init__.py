"""Compare a table's log with the database, and its data files with its log; repair the log."""
