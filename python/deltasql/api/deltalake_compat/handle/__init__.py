"""The object that deltalake's `DeltaTable` expects as its `RawDeltaTable`, over SQL."""
