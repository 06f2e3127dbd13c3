"""Starts, supervises and stops the processes of one instance. Plain Python, apart from `database`: no Django.

`instance` is the state folder and what is derived from it; `processes` lists what runs; `configuration` writes
supervisord's files; `control` starts and stops supervisord; `orphans` ends what a killed parent left behind.
"""
