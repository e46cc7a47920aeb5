"""Move tables between their logs and SQL: import, export, rebuild, follow, cutover, rollback."""
