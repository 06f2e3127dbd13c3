"""Prices in credits (specification, Credit quotas)."""
