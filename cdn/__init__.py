"""CDN: policies and quotas of files, their uploads, inspection and delivery (wire contract, section 9)."""
