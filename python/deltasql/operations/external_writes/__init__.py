"""Stage writes of other programs, which report new files, rewritten files or whole actions."""
