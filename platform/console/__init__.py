"""What of the staff console needs several apps: hosts, and the roles of staff."""
