"""A run as something to read: a page for the browser, CSV for tools, a table for the terminal."""

from .evaluation.csv import write_csv as write_csv
from .evaluation.html import write_report as write_report
from .evaluation.terminal import print_table as print_table
