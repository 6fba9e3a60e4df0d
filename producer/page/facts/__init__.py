"""Files of the store -> what the pages show of them."""
