"""Compare the published log with SQL, and repair it."""
