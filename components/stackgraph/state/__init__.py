"""Says what ``pulumi up`` would do to a deployed stack, from an export of its state and the recorded program.

Never imports pulumi.
"""
