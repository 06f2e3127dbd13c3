"""Credit quotas of namespaces and the ledger behind them. Not built yet; section 7."""
