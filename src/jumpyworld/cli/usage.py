"""What the option parser has to say about a command line, as one line instead of a box."""

import ast
import contextlib
import io
import re
import sys
from collections.abc import Iterator

_RULE = re.compile("[─-]+")
# Words that are no number, where one was asked for: what Python says of them, and what tyro says
# where a flag may be left out (``{None}|INT``) or takes several (``[FLOAT ...]``, which are numbers
# wherever not every word will do). Words stand there as Python writes them.
_NO_NUMBER = re.compile(
    r"Error parsing (?P<flag>--\S+): (?:(?:invalid literal for (?P<int>int)\(\) with base 10"
    r"|could not convert string to float): (?P<word>'[^']*'|\"[^\"]*\")"
    r"|(?:no type matching (?P<types>\S*(?:INT|FLOAT).*?) could be instantiated from "
    r"|Could not find valid parse for arguments: )(?P<words>\[.*?\]))"
    r"(?:; For full helptext.*)?$"
)


@contextlib.contextmanager
def complaints_on_one_line() -> Iterator[None]:
    """Print what is written to stderr by a parser that exits as ``jumpy: error: ...``."""
    written = io.StringIO()
    try:
        with contextlib.redirect_stderr(written):
            yield
    except SystemExit as stop:
        if stop.code:
            print(f"jumpy: error: {one_line(written.getvalue())}", file=sys.stderr)
        raise


def one_line(box: str) -> str:
    """Return the message in a parser's box: no frame, and no help texts of the options it names.

    Without UTF-8 the box has no bars: there too the title is the line that stands to the left.
    """
    parts: list[list[str]] = [[]]
    for line in box.replace("│", " ").splitlines():
        text = line.strip()
        depth = len(line) - len(line.lstrip())
        if depth < 2 or not text:
            continue
        if _RULE.fullmatch(text):
            parts.append([])
        # Deeper lines explain an option. Its name says enough, but what has only a place has none.
        elif depth < 10 or "--" not in parts[-1][-1]:
            parts[-1].append(text)
    said = [" ".join(part) for part in parts if part and part[0] != "Argument helptext:"]
    # Which types were tried in vain says no more than the type that was asked for.
    said = [part.partition(" Got errors:")[0].rstrip(".") for part in said]
    told = "; ".join(said) or " ".join(box.split())
    return _NO_NUMBER.sub(_no_number, told)


def _no_number(found: re.Match[str]) -> str:
    types = found["types"]
    try:
        words = ast.literal_eval(found["words"] or f"[{found['word']}]")
    except (SyntaxError, ValueError):  # cut by the box
        return found[0]
    if types is None and found["words"]:  # several, of a kind that is not named
        kind = "whole numbers" if all(map(_is_number, words)) else "numbers"
    else:
        kind = "whole number" if found["int"] or "INT" in (types or "") else "number"
        kind = f"{kind}s" if "..." in (types or "") else f"a {kind}"
    return f"{found['flag']} {' '.join(words)}: must be {kind}"


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
