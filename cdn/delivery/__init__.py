"""Delivery of files by the edge: their addresses, and the links by which it finds them without a process of ours."""

from __future__ import annotations

from cdn.delivery.addresses import file_url, variant_url
from cdn.delivery.links import withdraw_links

__all__ = ["file_url", "variant_url", "withdraw_links"]
