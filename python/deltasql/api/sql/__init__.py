"""Run SQL statements: each one calls the corresponding operation of the Python API."""
