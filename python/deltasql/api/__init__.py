"""What users call: catalogs, transactions, tables."""
