"""Pages: static files that are exported from a workspace and served by the edge (specification, Pages)."""
