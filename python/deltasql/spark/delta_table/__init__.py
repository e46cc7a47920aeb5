"""delta-spark's `DeltaTable` for tables whose log is in the database."""
