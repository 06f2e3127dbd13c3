"""Answers to the edge about files that it has no link of."""
