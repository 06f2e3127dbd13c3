"""The parts that the admin modules of all apps are made of."""
