"""Reads load test results of several tools, and compares them with each other and with published figures."""
