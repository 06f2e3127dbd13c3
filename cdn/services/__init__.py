"""Services of the CDN, the only writers of its files, permits and limits."""
