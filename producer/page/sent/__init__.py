"""Photos that are sent to the page's server, if a browser cannot run the model itself."""
