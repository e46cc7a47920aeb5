"""Commands for running a catalog: configuration, checks, maintenance, console."""
