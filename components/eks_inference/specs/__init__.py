"""What a user writes, as data: the base of specs, their validation in our words, texts that may be Outputs, shared settings."""
