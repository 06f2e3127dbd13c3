"""`make test-upgrade FROM=REF`: machines of an earlier commit's checkout, with this checkout's code after it."""
