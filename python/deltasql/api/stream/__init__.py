"""Streams that read a table: options, offsets, and the files of each micro-batch."""
