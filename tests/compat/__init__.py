"""What other releases of deltalake make of our tables, and we of theirs: `make compat`."""
