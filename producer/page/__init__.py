"""The page for people: what the store holds, as HTML; nothing is known to it that is not in the store."""
