"""Catalogs: open one, list and query its tables, publish, import, export, vacuum."""
