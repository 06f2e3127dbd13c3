"""Authorization of requests to public ports for the edge: the machine of a request, and waking it."""
