"""CDN quota controls and files. Not built yet; section 9."""
