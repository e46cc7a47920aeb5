"""delta-spark's `DeltaTable` for tables whose log is in SQL."""
