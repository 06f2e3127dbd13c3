"""The steps of each kind of operation. A step can be run again after a death in the middle of it."""
