"""The operations on a table (WRITE, DELETE, MERGE, ALTER …): each stages its actions."""
