"""Rehearses on a simulated cluster what teams cannot try on the real one."""
