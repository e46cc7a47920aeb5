"""Many clients write what they saw; a checker proves that one order of transactions explains it.

`python -m tests.history --minutes 60` runs it for long.
"""
