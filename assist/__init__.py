"""Code assistance. Not built yet; section 8."""
