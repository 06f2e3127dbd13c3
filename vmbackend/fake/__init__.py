"""A driver, image store and guest sessions without a hypervisor, for tests and for trying the platform out."""
