"""The catalog's database. Only this package runs SQL against it."""
