"""The steps of each kind of operation. Every step may run again after the process died in the middle of it."""
