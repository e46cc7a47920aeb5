"""Converts Spark Columns to SQL."""
