"""What staff do: their actions on rows of any app, the audit entries of it, and their second factor."""
