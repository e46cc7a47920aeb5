"""Commands on tables: list, create, describe."""
