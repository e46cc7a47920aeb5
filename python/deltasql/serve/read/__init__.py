"""Requests that plan reads: files, statistics, streams and change feeds."""
