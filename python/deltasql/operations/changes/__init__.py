"""The change data feed: read it and write it."""
