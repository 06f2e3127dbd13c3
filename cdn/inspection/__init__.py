"""Inspection of images and media, in a confined process for each file: `python -m cdn.inspection`.

Imports no Django. Reads one open file, writes to descriptors that it was given, and answers with one line of JSON.
"""
