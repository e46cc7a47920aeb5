"""The API of the `deltalake` package: `DeltaTable`, `write_deltalake`, `register`."""
