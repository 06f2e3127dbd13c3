"""What of the admin needs several apps: the start page, what the pages of rows show, hosts, and the roles of staff."""
