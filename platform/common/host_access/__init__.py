"""Credentials of a machine that joined: a role of the database and a user of Redis, both named by its host's id.

`grants` is the table of what such a role may do, `policies` keeps the database equal to it, `roles` and `redis_users`
make and drop the credentials, `confinement` says whether this process has such credentials.
"""
