"""Checkpoints and `.crc` files of the published log."""
