"""Replaces deltalake's internal `RawDeltaTable` for tables whose log is in the database."""
