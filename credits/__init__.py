"""What things cost, in credits (specification, Credit quotas)."""
