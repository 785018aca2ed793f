"""What changes between two recorded graphs, for people who review it.

Imports nothing of the library outside ``preview``, and never pulumi: graphs come in as documents, findings as texts.
"""
