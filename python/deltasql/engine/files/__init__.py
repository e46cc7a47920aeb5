"""Live data files: paths, partition values, deletion vectors, and reading with Arrow."""
