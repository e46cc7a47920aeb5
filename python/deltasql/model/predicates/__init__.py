"""Predicates: parse them, and decide which files can match."""
