"""One table out of the rows of all suites: for a terminal and as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import Row

_HEAD = ("work", "measured", "against", "baseline", "ratio", "target", "", "note")
_WIDTH = (62, 17, 42, 17, 7, 7, 6, 60)


def finish(rows: Sequence[Row]) -> list[Row]:
    """Fill in the baselines that another suite of the same run measured (``baseline_id``)."""
    known = {r["id"]: r["value"] for r in rows if r.get("id") and r["value"]}
    finished = []
    for r in rows:
        wanted = r.get("baseline_id")
        if not wanted or r.get("baseline") is not None:
            finished.append(r)
            continue
        baseline = known.get(wanted)
        ratio = r["value"] / baseline if baseline and r["value"] is not None else None
        judged = ratio is not None and isinstance(r["target"], (int, float))
        note = r.get("note") or ""
        if baseline is None:
            note = "; ".join(filter(None, [note, f"{wanted} was not measured in this run"]))
        finished.append(
            {**r, "baseline": baseline, "ratio": ratio, "note": note,
             "ok": ratio >= r["target"] if judged else None}
        )  # fmt: skip
    return finished


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        text = f"{value:,.0f}"
    elif value >= 100 or value == int(value):
        text = f"{value:.0f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".strip()


def _cells(r: Row) -> list[str]:
    target = r["target"]
    return [
        r["work"],
        _figure(r["value"], r["unit"]),
        r["against"] or "",
        _figure(r["baseline"], r["unit"]) if r["against"] else "",
        f"{r['ratio']:.3g}x" if r["ratio"] is not None else "",
        f"{target:g}x" if isinstance(target, (int, float)) else (target or ""),
        {True: "ok", False: "MISSED", None: ""}[r["ok"]],
        r.get("note") or "",
    ]


def table(rows: Sequence[Row]) -> str:
    """For a terminal: fixed columns, long cells cut (the Markdown file has all of them)."""
    lines = [_HEAD, tuple("-" * w for w in _WIDTH), *map(_cells, rows)]
    return "\n".join(
        "  ".join(_cut(cell, w) for cell, w in zip(line, _WIDTH, strict=True)).rstrip()
        for line in lines
    )


def _cut(text: str, width: int) -> str:
    return (text if len(text) <= width else text[: width - 3] + "...").ljust(width)


def markdown(rows: Sequence[Row], facts: Mapping[str, Any]) -> str:
    """The same table with nothing cut, and the facts of the run."""
    lines = ["# Benchmarks: last run", ""]
    lines += [", ".join(f"{k}: {v}" for k, v in facts.items()), ""]
    lines += ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD)]
    lines += ["| " + " | ".join(c.replace("|", "/") for c in _cells(r)) + " |" for r in rows]
    return "\n".join(lines) + "\n"
