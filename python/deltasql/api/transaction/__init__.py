"""Transactions over one or more tables, and the operations they stage."""
