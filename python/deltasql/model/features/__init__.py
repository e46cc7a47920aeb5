"""Table features with rules of their own: row tracking, Iceberg compatibility."""
