"""`python -m fuzz`: try changed files on every reader, and print what came of it."""

import argparse

from fuzz.trial import GROUPS, try_all

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000, help="how many files to try (default: 10000)")
    parser.add_argument("--only", choices=list(GROUPS), nargs="+", help="these groups of readers alone")
    options = parser.parse_args()
    print(try_all(options.inputs, options.only))
