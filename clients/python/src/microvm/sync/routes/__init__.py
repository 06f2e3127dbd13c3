"""The routes of each group, written by the generator."""
