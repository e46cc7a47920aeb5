"""Spark Columns as SQL text."""
