"""The edge's questions about files that it has no link of."""
