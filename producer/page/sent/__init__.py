"""Photos that are sent to the page's server, where a browser cannot run the model itself."""
