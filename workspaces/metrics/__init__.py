"""Current state of a workspace: statistics, the machine on its host, its configuration."""
