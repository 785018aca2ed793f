"""Controllers that stand in for what cannot run here."""
