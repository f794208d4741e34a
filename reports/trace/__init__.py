"""The report of a trace."""
