"""The implementation of deltalake's internal `RawDeltaTable` for tables in SQL."""
