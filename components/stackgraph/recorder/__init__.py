"""Runs a Pulumi program against a monitor of ours and keeps what it registers."""
