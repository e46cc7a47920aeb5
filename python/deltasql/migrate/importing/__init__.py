"""Import existing Delta tables into a catalog."""
