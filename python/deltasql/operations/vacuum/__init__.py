"""VACUUM: find the files that no retained version needs."""
