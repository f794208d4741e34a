"""The report of a diagnosis."""
