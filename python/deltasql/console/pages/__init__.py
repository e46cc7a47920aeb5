"""The pages of the console, one module for each."""
