"""What the edge asks about a request to a public port: which machine it leads to, and waking that machine."""
