"""Functions of `deltasql` that open a catalog, do one thing and close it."""
