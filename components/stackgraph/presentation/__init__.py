"""How all that a person looks at is drawn: text for a terminal, HTML pages, plots. Programs read JSON and load none of it."""
