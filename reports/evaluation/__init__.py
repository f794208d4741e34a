"""The report of an evaluation: page, CSV files, terminal table."""
