"""The scenarios: one file each, with a `run(workspace, quick)` that returns results."""
