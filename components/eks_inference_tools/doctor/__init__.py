"""Asks an AWS account what only the account knows about a stack, before it is deployed. Changes nothing."""
