"""The synchronous client: made by `generate.py` from `microvm.aio`; not edited by hand."""
