"""The files beside the evidence that are computed from it."""

PAGE = "report.html"
CORRUPTIONS = "corruptions.csv"  # only if corrupted images were judged
DERIVED = ("results.csv", "samples.csv", PAGE, CORRUPTIONS)
