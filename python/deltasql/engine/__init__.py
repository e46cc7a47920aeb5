"""The data plane: engines that read and write Parquet files."""
