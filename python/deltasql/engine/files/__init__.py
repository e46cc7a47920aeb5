"""Live data files: their addresses, their sizes, and reading them concurrently."""
