"""Folders that one host fetches from another one, over the private network: rsync inside SSH.

A source *offers* a folder to the key of one host (`server`); that host *fetches* it (`client`). Neither side trusts the
other: both ends of rsync are confined, and neither names a path, an option or a command to the other one.
"""
