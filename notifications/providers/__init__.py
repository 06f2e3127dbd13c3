"""Providers, which deliver to devices: FCM, and the push services of browsers. Imported in the process `push` only."""
