"""Ratify staged actions: validation, conflict rules and the retry loop."""
