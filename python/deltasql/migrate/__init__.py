"""Move tables between their logs and the database: import, export, rebuild, follow, cutover, rollback."""
