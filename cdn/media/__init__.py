"""Processing from received bytes to a published file: the worker `media`."""
