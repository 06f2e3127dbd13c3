"""Uploads by the address of a permit: whole bodies, and parts as in tus 1.0. For the streams process."""
