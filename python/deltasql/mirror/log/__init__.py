"""The files of a `_delta_log`: encode, list, read, compact and delete them."""
