"""SQL expressions of users, resolved against a table, and builders for queries."""
