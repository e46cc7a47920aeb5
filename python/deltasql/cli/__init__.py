"""The command line: it calls the API and nothing below it."""
