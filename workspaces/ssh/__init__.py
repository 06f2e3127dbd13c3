"""SSH access for a workspace's users, by keys only."""
