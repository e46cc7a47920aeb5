"""Writers, readers, a reconciler, optimize and vacuum run concurrently for a long time.

`python -m tests.soak --minutes 10` runs them and writes the report.
"""
