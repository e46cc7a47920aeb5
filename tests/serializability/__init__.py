"""Many clients record what they read; a checker proves that some order of transactions explains it.

`python -m tests.serializability --minutes 60` runs it for an hour.
"""
