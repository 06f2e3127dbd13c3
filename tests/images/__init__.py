"""Images of the kinds that people bring, run on real machines: `make images` (docs/testing.md, Images)."""
