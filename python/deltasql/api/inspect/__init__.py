"""Read-only reports on a catalog: sizes, history, differences, mirror state and problems."""
