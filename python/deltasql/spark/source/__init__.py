"""The Spark data source `deltasql`, batch and streaming."""
