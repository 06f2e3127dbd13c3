"""Cases that schemathesis makes of the OpenAPI document, valid and not, sent to the WSGI application in this process.

`stage` has an account with one of everything, whose machines run on the fake driver; `cases` makes and sends, `report`
counts. `make test` sends a few of each operation, always the same; `make fuzz-api` any number from a seed.
"""
