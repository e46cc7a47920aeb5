"""Tests of the local service, over HTTP, without Spark."""
