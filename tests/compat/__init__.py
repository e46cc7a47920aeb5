"""Checks that other releases of deltalake and deltasql use each other's tables: `make compat`."""
