"""Uploads by the address of a permit: whole bodies, and parts as tus 1.0 has them. For the streams process."""
