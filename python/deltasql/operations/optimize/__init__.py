"""OPTIMIZE: compaction, clustering and Z-ordering."""
