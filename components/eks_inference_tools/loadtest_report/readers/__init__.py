"""One module per tool: recognises its result file and converts it to ``Run`` records."""
