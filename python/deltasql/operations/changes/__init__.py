"""The change data feed: read and write the rows that versions changed."""
