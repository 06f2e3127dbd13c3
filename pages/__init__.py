"""Pages: static files exported from a workspace and served by the edge. Not built yet; section 5."""
