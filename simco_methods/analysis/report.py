"""``report.html``: the findings of one checkpoint on one page, with nothing beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simco_methods.analysis.finding import Finding
from simco_methods.page import facts_table, image, table, text, write_page
from simco_methods.wording import count


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
        left_out: the title of an analysis that could not be made to the reason.
    """
    parts = [facts_table(facts)]
    for finding, figures in findings:
        parts.append(f"<h2>{text(finding.title)}</h2><p>{text(finding.text)}</p>")
        parts += [image(figure) for figure in figures]
        parts.append(f"<details><summary>{count(len(finding.rows), 'row')}</summary>")
        parts.append(f"{table(finding.rows)}</details>")
    for title, reason in left_out.items():
        parts.append(f"<h2>{text(title)}</h2><p>Not made: {text(reason)}</p>")
    write_page(path, f"Dictionary analyses of {facts['checkpoint']}", parts)
