"""Run SQL statements: each statement calls the operation of the Python API that it names."""
