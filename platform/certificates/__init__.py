"""Certificates of names that users bring, obtained from a CA by ACME (HTTP-01) and served by the edge."""
