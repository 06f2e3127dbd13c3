"""Rows against machines, and operations whose owner died: at the start of vmhost and every minute."""
