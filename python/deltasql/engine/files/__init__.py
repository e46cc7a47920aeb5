"""Live data files: addresses, partition values, deletion vectors, and reading with Arrow."""
