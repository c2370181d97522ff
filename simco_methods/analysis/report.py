"""``report.html``: the findings of one checkpoint on one page, with nothing beside it."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simco_methods.analysis.finding import Finding, Rows
from simco_methods.files import write_text

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
img { max-width: 100% } table { border-collapse: collapse; font-size: 13px }
td, th { padding: .2rem .6rem; border-bottom: 1px solid #ddd; text-align: right }
details { margin: .5rem 0 1.5rem } .facts td { text-align: left }
"""


def write_report(
    path: Path,
    facts: Mapping[str, Any],
    findings: Sequence[tuple[Finding, Sequence[Path]]],
    left_out: Mapping[str, str],
) -> None:
    """Writes the page.

    Args:
        path: the HTML file.
        facts: what was analysed, with what, on what.
        findings: each with the PNGs of its figures, which are put into the page.
        left_out: an analysis that could not be made to the reason.
    """
    title = f"Dictionary analyses of {html.escape(str(facts['checkpoint']))}"
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>",
        f"<style>{_STYLE}</style><h1>{title}</h1>",
        "<table class='facts'>",
        *(
            f"<tr><td>{_text(name)}</td><td>{_text(value)}</td></tr>"
            for name, value in facts.items()
        ),
        "</table>",
    ]
    for finding, figures in findings:
        parts.append(f"<h2>{_text(finding.title)}</h2><p>{_text(finding.text)}</p>")
        for figure in figures:
            data = base64.b64encode(figure.read_bytes()).decode()
            parts.append(f"<p><img alt='{figure.stem}' src='data:image/png;base64,{data}'></p>")
        parts.append(f"<details><summary>{len(finding.rows)} rows</summary>")
        parts.append(f"{_table(finding.rows)}</details>")
    for name, reason in left_out.items():
        parts.append(f"<h2>{_text(name)}</h2><p>Not made: {_text(reason)}</p>")
    write_text(path, "\n".join(parts) + "\n")


def _table(rows: Rows) -> str:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    lines = (
        "<tr>" + "".join(f"<td>{_text(row.get(column))}</td>" for column in columns) + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{''.join(lines)}</table>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))
