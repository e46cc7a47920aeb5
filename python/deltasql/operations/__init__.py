"""The verbs, one file each: what to stage so that a table changes as asked."""
