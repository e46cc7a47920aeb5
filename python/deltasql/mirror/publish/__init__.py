"""Publishing commits to `_delta_log`."""
