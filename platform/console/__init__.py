"""Parts of the staff console that need several apps: start page, pages of rows, hosts, and the roles of staff."""
