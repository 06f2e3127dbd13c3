"""Changes of rows of the CDN; nothing else writes them."""
