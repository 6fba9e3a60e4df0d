"""Files of the store -> what the pages show from them."""
