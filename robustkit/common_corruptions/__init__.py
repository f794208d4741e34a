"""The corruptions of Hendrycks & Dietterich 2019: generated for any images, or read from published folders."""
