"""What every API shares: errors and their one body, pagination, durations, ids, secrets. No models here."""
