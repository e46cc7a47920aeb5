"""The engine that runs operations on Spark."""
