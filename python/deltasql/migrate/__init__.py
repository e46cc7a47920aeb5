"""Logs that come from elsewhere: a lake whose catalog is lost, commits that went past SQL."""
