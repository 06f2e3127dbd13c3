"""Error pages of public ports, shown if no program in the machine answers. Imports no Django."""

from __future__ import annotations

from html import escape

_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>{title}</title><body style="font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:12vh auto;'
    'padding:0 1em;color:#223"><h1 style="font-size:1.4em">{title}</h1><p>{message}</p></body></html>'
)


def page(title: str, message: str) -> str:
    """Return a whole HTML document without any outside asset."""
    return _PAGE.format(title=escape(title), message=escape(message))
