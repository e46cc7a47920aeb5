"""Commands that read rows."""
