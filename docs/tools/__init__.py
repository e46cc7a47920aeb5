"""Generators of pages and pictures, and the MkDocs hooks of the site."""
