"""What all pages and tables share: files, templates, numbers as words."""
