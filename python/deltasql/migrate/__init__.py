"""Move tables between logs and the database: import, export, rebuild, follow, cutover, rollback."""
