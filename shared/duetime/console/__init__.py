"""The web console: a page, its style sheet and its modules, served as they are (``api.console``). No build step.

The files that are served are those in this directory with an ending that ``api.console`` knows.
"""
