"""SQL statements about tables in Delta's Spark grammar: their parser and their classes."""
