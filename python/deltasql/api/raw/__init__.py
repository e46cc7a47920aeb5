"""The table object that deltalake's own classes talk to, over SQL."""
