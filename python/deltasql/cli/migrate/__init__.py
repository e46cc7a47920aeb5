"""Commands that import, export and hand over tables."""
