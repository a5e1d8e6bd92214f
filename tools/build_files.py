"""A graph of over a million entities: Debian's packages, the directories they write to and the names of their files.

`python tools/build_files.py FILE.tsv` writes one fact a line: what tools/build_packages.py says of all packages,
`PACKAGE ships file:NAME` and `PACKAGE writes to dir:DIRECTORY`, and `dir:A inside dir:B`. A name that occurs once says
nothing of another file and is left out. It needs a Debian or Ubuntu machine after `apt-get install apt-file` and
`apt-file update`.
"""

from __future__ import annotations

import argparse
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from build_packages import LISTS, facts_of, read_lists

Fact = tuple[str, str, str]


def read_contents() -> Iterator[tuple[str, str]]:
    """Every file and a package that has it, list by list: a line is a path and its packages, `section/name,...`."""
    for path in sorted(LISTS.glob("*_Contents-*")):
        command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield from parse_contents(process.stdout)
        if process.returncode:
            raise SystemExit(f"{path}: apt-helper could not read it")


def parse_contents(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The path and a package for each package of each line; paths may have blanks in them."""
    for line in lines:
        file, _, places = line.strip().rpartition(" ")
        for place in places.split(","):
            if file:
                yield file.rstrip(), place.rpartition("/")[2]


def facts_of_files(contents: Iterable[tuple[str, str]], least: int) -> Iterator[Fact]:
    """Facts of directories and of names that occur in `least` places or more; some come more than once."""
    ships, seen, times = set(), set(), Counter[str]()
    for file, package in contents:
        directory, _, name = file.rpartition("/")
        ships.add((package, name))
        times[name] += 1
        if (package, directory) not in seen:
            seen.add((package, directory))
            yield package, "writes to", f"dir:{directory}"
            yield from facts_of_directory(directory)
    yield from ((package, "ships", f"file:{name}") for package, name in sorted(ships) if times[name] >= least)


def facts_of_directory(directory: str) -> Iterator[Fact]:
    """It is inside its parent, and that in its own."""
    while directory:
        parent = directory.rpartition("/")[0]
        yield f"dir:{directory}", "inside", f"dir:{parent}"
        directory = parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--least", type=int, default=2, help="places in which the name of a file must occur")
    options = parser.parse_args()
    facts = dict.fromkeys(fact for fields in read_lists() for fact in facts_of(fields))
    facts.update(dict.fromkeys(facts_of_files(read_contents(), options.least)))
    options.file.write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")
    print(f"{len(facts):,} facts in {options.file}")


if __name__ == "__main__":
    main()
