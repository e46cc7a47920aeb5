"""Commands that import, export, follow and cut over tables, and rebuild a catalog."""
