"""What a person sees on the terminal: bars, tables, the lint page."""
