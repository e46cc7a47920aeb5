"""Converts Spark Columns to SQL text."""
