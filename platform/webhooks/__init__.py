"""Webhook subscriptions and their deliveries (an outbox). Not built yet; section 7."""
