"""What people look at: sizes, history, differences, the mirror, and what is wrong."""
