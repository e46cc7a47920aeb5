"""VACUUM: find files that no retained version needs."""
