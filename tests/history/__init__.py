"""Many clients record what they read; a checker proves that some order of transactions explains it.

`python -m tests.history --minutes 60` runs it for an hour.
"""
