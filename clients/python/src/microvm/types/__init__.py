"""Shapes of bodies and answers, one module for each group of methods."""
