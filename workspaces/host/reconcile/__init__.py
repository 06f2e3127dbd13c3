"""Reconcile: rows with machines, and operations whose claim owner died; at the start of vmhost and every minute."""
