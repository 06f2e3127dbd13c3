"""Usage of workspaces: totals, the series in tiers, and the credits chart. `host.metering` measures and writes it."""
