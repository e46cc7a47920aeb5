"""Commands that import, export and follow tables, move their authority, and rebuild a catalog."""
