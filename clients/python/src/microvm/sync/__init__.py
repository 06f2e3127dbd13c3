"""The synchronous client. All but `waiting.py` is written from `microvm.aio` and not edited."""
