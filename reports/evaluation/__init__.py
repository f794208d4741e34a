"""The report of an evaluation: page, CSV files, table for the terminal."""
