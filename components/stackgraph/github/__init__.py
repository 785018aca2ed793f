"""Posts the report of a comparison as a comment on a GitHub pull request."""

LONGEST_BODY = 65_536
"""Characters in a comment. The API rejects more with "Body is too long (maximum is 65536 characters)"."""
