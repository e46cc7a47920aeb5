"""The scenarios: one module each, with a function `run(workspace, quick)` that returns results."""
