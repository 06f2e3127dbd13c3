"""What a workspace reaches and who reaches it: its network policy, its public ports, and the edge's questions."""
