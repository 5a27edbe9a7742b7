#!/usr/bin/env python3
"""Writes the results of `sweep_gpu.py` or `sweep_cpu.py` as a table.

    python3 benches/peers/sweep_table.py sweep.json --to benches/results

writes `<name>.md`. `cargo xtask figures` draws the sweep on a GPU.
"""

import argparse
import json
import os

from sweep_results import table


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", metavar="FILE", help="JSON of a sweep")
    parser.add_argument("--to", metavar="FOLDER", default=".", help="where the table goes")
    arguments = parser.parse_args()
    with open(arguments.results, encoding="utf-8") as file:
        text = table(json.load(file))
    name = os.path.splitext(os.path.basename(arguments.results))[0]
    with open(os.path.join(arguments.to, f"{name}.md"), "w", encoding="utf-8") as file:
        file.write(text)
    print(text)


if __name__ == "__main__":
    main()
