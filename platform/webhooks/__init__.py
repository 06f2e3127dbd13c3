"""Webhooks: subscriptions of an account, and the outbox of events that are sent to them."""
