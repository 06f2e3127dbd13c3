"""Sockets to the inside of a machine: its terminals as all sockets of a process share them, and how they are served."""
