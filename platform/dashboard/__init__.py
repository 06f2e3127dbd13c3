"""The start page of the admin: figures of all apps, and the hourly counts that their trends are drawn from."""
