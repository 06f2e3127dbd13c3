"""The asynchronous client, from which `generate.py` makes the synchronous one."""
