"""The format of `_delta_log`: encode, list and read commits and checkpoints."""
