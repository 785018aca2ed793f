"""What several domains say to AWS in the same way: policy documents, names it can take. Pure."""
