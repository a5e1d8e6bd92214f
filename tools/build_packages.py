"""A graph of Debian packages from the lists that apt keeps: what depends on what, maintainers, sections, tags.

`python tools/build_packages.py FILE.tsv --sections python` writes one fact a line, of all packages in some sections;
what they depend on is in it whatever its section. It needs a Debian or Ubuntu machine after `apt-get update`.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

LISTS = Path("/var/lib/apt/lists")
LINKS = ("Depends", "Recommends", "Suggests", "Breaks", "Provides")


def read_lists() -> Iterator[dict[str, str]]:
    """The fields of every package, list by list."""
    for path in sorted(LISTS.glob("*_Packages*")):
        text = subprocess.run(
            ["/usr/lib/apt/apt-helper", "cat-file", str(path)], check=True, capture_output=True, text=True
        ).stdout
        for paragraph in text.split("\n\n"):
            fields = dict(Parser().parsestr(paragraph, headersonly=True).items())
            if "Package" in fields:
                yield fields


def facts_of(fields: dict[str, str]) -> Iterator[tuple[str, str, str]]:
    """What is said of one package."""
    name = fields["Package"]
    for field in LINKS:
        for part in re.split(r"[,|]", fields.get(field, "")):
            other = re.split(r"[\s(:\[]", part.strip())[0]
            if other:
                yield name, field.lower(), other
    yield name, "section", f"section:{fields['Section']}"
    yield name, "priority", f"priority:{fields['Priority']}"
    yield name, "architecture", f"arch:{fields['Architecture']}"
    yield name, "maintainer", f"maintainer:{fields['Maintainer'].split('<')[0].strip()}"
    yield name, "source", f"source:{fields.get('Source', name).split()[0]}"
    for tag in re.split(r",\s*", fields.get("Tag", "").replace("\n", "")):
        for each in _expand(tag):
            yield name, "tag", each


def _expand(tag: str) -> list[str]:
    """`a::{b,c}` is two tags; what a comma cut apart is left out."""
    return [tag.strip()] if "::" in tag and "{" not in tag and "}" not in tag else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--sections", nargs="+", help="all, if none are given")
    options = parser.parse_args()
    wanted = set(options.sections or ())
    facts = dict.fromkeys(
        fact for fields in read_lists() if not wanted or fields["Section"] in wanted for fact in facts_of(fields)
    )
    options.file.write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")
    print(f"{len(facts):,} facts in {options.file}")


if __name__ == "__main__":
    main()
