"""The catalog's database: the only package that runs SQL against it."""
