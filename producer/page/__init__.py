"""The page for people: what the store holds, as HTML; the page knows only what is in the store."""
