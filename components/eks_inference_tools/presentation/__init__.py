"""How commands present what they found: text, pages, plots, progress."""
