"""Small controllers that stand in for what cannot run here."""
