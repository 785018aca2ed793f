"""Compares two recorded graphs and reports the changes to reviewers.

Never imports pulumi: graphs arrive as documents, findings as text.
"""
