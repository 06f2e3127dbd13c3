"""Network of a workspace: its network policy, its public ports, and the edge's questions."""
