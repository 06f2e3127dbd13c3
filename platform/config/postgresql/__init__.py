"""The database engine for PostgreSQL: Django's, with connections that are looked at before they are used."""
