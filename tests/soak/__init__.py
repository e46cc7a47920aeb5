"""Writers, readers, a reconciler, optimize and vacuum at once, for long.

`python -m tests.soak --minutes 10` runs it and writes the report.
"""
