"""A look at a workspace now: its statistics, its machine on its host, its configuration."""
