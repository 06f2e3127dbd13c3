"""Who calls: accounts, their plans, credentials with scopes, access tokens, and idempotency keys."""
