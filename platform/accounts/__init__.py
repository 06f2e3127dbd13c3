"""Authentication: accounts, plans, credentials with scopes, access tokens, and idempotency keys."""
