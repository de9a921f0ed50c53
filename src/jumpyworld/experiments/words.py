"""Numbers and tables as words of Markdown."""

from collections.abc import Callable, Iterable, Sequence

from jumpyworld.experiments.results import Measured, Row

NONE = "-"
STAR = "*"
"""Marks a number that was not measured with the paper's settings."""


def success(measured: Measured | None) -> str:
    """Return a mean with its interval."""
    return NONE if measured is None else f"{rate(measured.mean)} {ends(*measured.ci95)}"


def details(known: Sequence[Measured], labels: Sequence[str], pairs: bool) -> list[str]:
    """Return n, spread over seeds, gains over zero-shot if asked for, device and minutes."""
    spreads = [(each.over_seeds, each.varying) for each in known]
    shown = [s and f"{rate(s[0])} / {rate(s[1])} ({which})" for s, which in spreads]
    extra = [labelled(labels, shown)]
    if pairs:
        gains = [each.paired for each in known]
        shown = [g and f"{signed(g[0])} {ends(*g[1], signed)}" for g in gains]
        extra.append(labelled(labels, shown))
    return [once(each.count for each in known), *extra, *machine([each.rows for each in known])]


def machine(groups: Sequence[Sequence[Row]]) -> list[str]:
    """Return devices and minutes of groups of rows."""
    devices = [str(row.data.get("device", NONE)) for group in groups for row in group]
    return [once(devices), once(minutes(group) for group in groups)]


def minutes(rows: Sequence[Row]) -> str:
    """Return the minutes that rows name, summed."""
    total, known = 0.0, False
    for row in rows:
        minutes = row.data.get("minutes")
        for value in minutes.values() if isinstance(minutes, dict) else ():
            if isinstance(value, int | float):
                total, known = total + value, True
    return f"{total:.1f}" if known else NONE


def labelled(labels: Sequence[str], words: Sequence[str | None]) -> str:
    """Return those words that there are; where there are several, each with its column's name."""
    found = [(label, word) for label, word in zip(labels, words, strict=True) if word]
    if len(found) == len(labels) == 1:
        return found[0][1]
    return "; ".join(f"{label} {word}" for label, word in found) or NONE


def once(words: Iterable[str]) -> str:
    """Return different words once each, in their order."""
    return "; ".join(dict.fromkeys(words)) or NONE


def rate(value: float) -> str:
    """Return a share as the paper prints it, without its zero."""
    return f"{value:.2f}".removeprefix("0") if 0 <= value < 1 else f"{value:.2f}"


def signed(value: float) -> str:
    """Return a difference of shares."""
    return ("-" if value < 0 else "+") + rate(abs(value))


def ends(low: float, high: float, form: Callable[[float], str] = rate) -> str:
    """Return an interval."""
    return f"[{form(low)}, {form(high)}]"


def table(titles: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Return a table."""

    def line(words: Sequence[str]) -> str:
        # A stray bar or line break would tear the table.
        return "| " + " | ".join(" ".join(w.replace("|", "/").split()) for w in words) + " |"

    return "\n".join([line(titles), "|" + "---|" * len(titles), *map(line, lines)])
