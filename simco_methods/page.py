"""Tables and pages for people: Markdown, and HTML with nothing beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simco_methods.files import write_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  overflow-wrap: break-word }
img { max-width: max(100%, 44rem) } table { border-collapse: collapse; font-size: 13px }
.wide { overflow-x: auto }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right }
details { margin: .5rem 0 1.5rem } .facts td { text-align: left; overflow-wrap: anywhere }
.facts td:first-child { white-space: nowrap; overflow-wrap: normal; vertical-align: top }
"""


def markdown_table(lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table, its columns aligned; the first line is its head."""
    lines = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    widths = [max(3, *(len(line[i]) for line in lines)) for i in range(len(lines[0]))]
    ruled = [lines[0], ["-" * width for width in widths], *lines[1:]]
    padded = (
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in ruled
    )
    return "\n".join(f"| {line} |" for line in padded) + "\n"


def write_page(path: Path, title: str, parts: Iterable[str], style: str = "") -> None:
    """Writes a page of HTML ``parts`` below its title; ``style`` is CSS of its own."""
    title = text(title)
    head = (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{title}</title>"
    )
    body = [head, f"<style>{_STYLE}{style}</style><h1>{title}</h1>", *parts]
    write_text(path, "\n".join(body) + "\n")


def facts_table(facts: Mapping[str, Any]) -> str:
    """Names and what they are."""
    rows = (
        f"<tr><td>{text(name)}</td><td>{text(value)}</td></tr>" for name, value in facts.items()
    )
    return "\n".join(["<table class='facts'>", *rows, "</table>"])


def image(path: Path) -> str:
    """A PNG, put into the page."""
    data = base64.b64encode(path.read_bytes()).decode()
    return f"<p class='wide'><img alt='{path.stem}' src='data:image/png;base64,{data}'></p>"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with all columns that any row has."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{text(column)}</th>" for column in columns)
    lines = (
        "<tr>" + "".join(f"<td>{text(row.get(column))}</td>" for column in columns) + "</tr>"
        for row in rows
    )
    return f"<div class='wide'><table><tr>{head}</tr>{''.join(lines)}</table></div>"


def text(value: Any) -> str:
    """A value as text of a page; nothing for None."""
    if value is None:
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
