"""AWS helpers that several domains share: IAM policy documents and names. Pure; no pulumi."""
