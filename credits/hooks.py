"""Hooks by which higher apps learn of quotas (docs/architecture.md, Layers); they run in the charge's transaction."""

from __future__ import annotations

from common.hooks import Hook
from credits.models import Balance

# (balance, threshold in percent of the limit): each once between two settings or resets of the quota, in order.
threshold_passed: Hook[[Balance, float], None] = Hook("credits.threshold_passed")
# The limit and the overdraft are used up.
quota_depleted: Hook[[Balance], None] = Hook("credits.quota_depleted")
