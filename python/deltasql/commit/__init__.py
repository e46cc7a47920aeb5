"""From staged actions to a ratified commit: validation, conflict rules, the retry loop."""
