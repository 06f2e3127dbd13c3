"""OCI images: from a reference to a squashfs base disk in a cache keyed by digest."""
