"""What a run leaves behind: rows in SQLite, and the tables that follow from them."""
