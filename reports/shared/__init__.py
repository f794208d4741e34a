"""What all reports share: templates, style, figures, images, CSV files, tables for the terminal, numbers as text."""
