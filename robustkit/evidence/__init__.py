"""The evidence of a run: rows in SQLite, and the tables and pictures that are computed from them."""
