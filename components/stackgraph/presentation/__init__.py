"""Draws output for people: terminal text, HTML pages, plots. JSON output needs none of these modules."""
