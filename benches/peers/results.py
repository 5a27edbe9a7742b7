"""How results are written: JSON with few digits, and what fits into a line in one line.

    python3 benches/peers/results.py FILE...

writes files anew, such as files of other programs.
"""

import json
import os
import sys

# More than any table shows.
DIGITS = 8
WIDTH = 140


def command():
    """The command line of the script, without the folders of this machine."""
    return " ".join(os.path.basename(word) for word in sys.argv)


def text(value, indent=0):
    """A value as JSON. What is wider than a line has an element a line."""
    line = json.dumps(_rounded(value) if indent == 0 else value)
    if indent == 0:
        value = json.loads(line)
    if indent + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {text(one, indent + 1)}" for key, one in value.items()]
    else:
        parts = [text(one, indent + 1) for one in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inner = "\n" + " " * (indent + 1)
    return f"{opening}{inner}{(',' + inner).join(parts)}\n{' ' * indent}{closing}"


def _rounded(value):
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write(path, results):
    """Writes a file completely or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.write(text(results) + "\n")
    os.replace(f"{path}.part", path)


def show(results, path=None):
    """Prints results, and writes them if there is a file."""
    print(text(results))
    if path:
        write(path, results)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as source:
            found = json.load(source)
        write(name, found)
