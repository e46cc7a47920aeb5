"""Commands on the published log."""
