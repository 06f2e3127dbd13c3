"""The only writers of files, permits and limits of the CDN."""
