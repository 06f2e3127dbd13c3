"""What workspaces use: measured every second by the host that has them, kept in tiers, and metered for billing."""
