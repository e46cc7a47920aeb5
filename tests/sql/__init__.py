"""Tests of SQL statements; `cases` has one case for each statement, for every engine."""
