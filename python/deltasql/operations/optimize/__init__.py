"""OPTIMIZE: compaction, clustering and Z-order."""
