"""The machine and its user: devices, versions, files and the display of progress."""
