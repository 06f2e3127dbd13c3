"""Staff: their actions on rows of any app, the audit entries of these, and the second factor."""
