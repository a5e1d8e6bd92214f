"""Builds the embedded graph src/kgem/data/world.tsv from three permissively licensed packages.

Sources
  countryinfo 1.0.1 (PyPI, MIT licence): land borders, capitals, calling codes
  cldr-core 48.2.0 (npm, Unicode License V3): languages, currencies and their history, regions, memberships,
      first day of the week, clock, scripts, language families
  Babel 2.18.0 (PyPI, BSD-3-Clause; its names are CLDR's, Unicode License V3): English names, time zone places
Offsets of the time zones come from the standard library's zoneinfo (tz database, public domain).

    pip install countryinfo==1.0.1 babel==2.18.0 tzdata
    npm pack cldr-core@48.2.0 && tar xzf cldr-core-48.2.0.tgz      # makes the folder "package"
    python tools/build_world.py --cldr package --out src/kgem/data/world.tsv

What the sources have wrong is put right in the tables below. "Country" means every inhabited territory with
an ISO code, and Kosovo. The splits are fixed by a seed: the two directions of a border stay together; every
symbol of valid and test occurs in train; capitals are train only, since nothing else could tell them.
"""

from __future__ import annotations

import argparse
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from babel import Locale
from babel.core import get_global

Fact = tuple[str, str, str]

AS_OF = "2026-02-01"  # currencies are those in use on this day
SEED = 2019
HELD_OUT = 0.08  # share of valid, and of test
TRAIN_ONLY = {"has capital"}
LAST = "~"  # sorts behind every official status
SPOKEN_FROM = 5.0  # per cent of the population

UNINHABITED = {"AQ", "BV", "GS", "HM", "TF", "UM", "IO", "SJ"}
NOT_COUNTRIES = {"AC", "CP", "CQ", "DG", "EA", "IC", "TA", "ZZ", "XA", "XB", "AN", "CS"}

COUNTRY_NAMES = {
    "CD": "Democratic Republic of the Congo",
    "CG": "Republic of the Congo",
    "CI": "Ivory Coast",
    "CZ": "Czech Republic",
    "HK": "Hong Kong",
    "MM": "Myanmar",
    "MO": "Macao",
    "PS": "Palestine",
    "TR": "Turkey",
    "VC": "Saint Vincent and the Grenadines",
}
# Slips of the English names, and names that would be taken for another entity's.
RENAMED = {
    "Bangla": "Bengali",
    "Bangla script": "Bengali script",
    "Caribbean guilder": "Caribbean Guilder",
    "Guyanaese Dollar": "Guyanese Dollar",
    "Kyrgystani Som": "Kyrgyzstani Som",
    "Myanmar script": "Burmese script",
    "Nauru": "Nauruan",
    "Simplified script": "Simplified Chinese script",
    "Soviet Rouble": "Soviet Ruble",
    "Tokelau": "Tokelauan",
    "Traditional script": "Traditional Chinese script",
    "Tuvalu": "Tuvaluan",
    "Unified Canadian Aboriginal Syllabics script": "Canadian Aboriginal script",
}
# Widely spoken, but no law makes them official; and languages that hardly anybody speaks today.
NOT_OFFICIAL = {("DZ", "fr"), ("MA", "fr"), ("NG", "yo"), ("UA", "ru")}
NOT_SPOKEN = {"cop", "nqo"}
# Land borders: what the source lacks, and what it invents (seas, bases, neighbours of the past).
BORDERS_MISSING = {
    ("IND", "MMR"),
    ("IRQ", "KWT"),
    ("NPL", "CHN"),
    ("SDN", "TCD"),
    ("ALB", "XKX"),
    ("MKD", "XKX"),
    ("MNE", "XKX"),
    ("SRB", "XKX"),
    ("GUF", "SUR"),
    ("GUF", "BRA"),
    ("MAF", "SXM"),
}
BORDERS_WRONG = {
    ("TCD", "SSD"),
    ("CYP", "GBR"),
    ("IND", "AFG"),
    ("IND", "LKA"),
    ("KWT", "IRN"),
    ("MMR", "BTN"),
    ("SRB", "ALB"),
    ("SUR", "FRA"),
    ("BRA", "FRA"),
}
CAPITALS = {
    "BI": "Gitega",
    "BQ": "Kralendijk",
    "DJ": "Djibouti City",
    "GI": None,
    "HK": None,
    "KZ": "Astana",
    "LK": "Sri Jayawardenepura Kotte",
    "LU": "Luxembourg City",
    "MC": None,
    "MO": None,
    "MS": "Brades",
    "NF": "Kingston (Norfolk Island)",
    "PF": "Papeete",
    "PS": "Ramallah",
    "SG": None,
    "SM": "City of San Marino",
    "SZ": "Mbabane",
    "TK": None,
    "US": "Washington, D.C.",
    "VA": None,
    "XK": "Pristina",
}
CALLING_CODES = {
    **dict.fromkeys(("TC", "VG", "VI", "SX"), "1"),
    **dict.fromkeys(("CW", "BQ", "BL", "MF"), "5"),
    "AX": "3",
    "XK": "3",
    "PS": "9",
}
CALLING_ZONES = {
    "1": "North America",
    "2": "Africa",
    "3": "Europe",
    "4": "Europe",
    "5": "Latin America",
    "6": "Pacific",
    "7": "Russia and Kazakhstan",
    "8": "East Asia",
    "9": "West and South Asia",
}
PLACES = {
    "Araguaina": "Araguaína",
    "Bahia": "Salvador da Bahia",
    "Belem": "Belém",
    "Busingen": "Büsingen",
    "Canary": "Canary Islands",
    "Chatham": "Chatham Islands",
    "Cordoba": "Córdoba",
    "Cuiaba": "Cuiabá",
    "Eirunepe": "Eirunepé",
    "Galapagos": "Galápagos Islands",
    "Gambier": "Gambier Islands",
    "Ho Chi Minh": "Ho Chi Minh City",
    "Jujuy": "San Salvador de Jujuy",
    "Maceio": "Maceió",
    "Marquesas": "Marquesas Islands",
    "Mazatlan": "Mazatlán",
    "Mahe": "Mahé",
    "Rio Gallegos": "Río Gallegos",
    "Saint John's": "Saint John's (Canada)",
    "San Juan": "San Juan (Argentina)",
    "Santarem": "Santarém",
    "Sao Paulo": "São Paulo",
    "Tucuman": "San Miguel de Tucumán",
}
NO_ZONES = {"Asia/Urumqi", "Europe/Simferopol"}  # disputed: the clock there is not the country's
# Zones named after an island or town that stands for the whole country or its capital.
NO_PLACES = {"Cocos Islands", "Efate", "Fakaofo", "Grand Turk", "Lower Prince's Quarter", "Tirane", "Tortola"}
DAYS = {"mon": "Monday", "fri": "Friday", "sat": "Saturday", "sun": "Sunday"}
CONTINENTS = {"002": "Africa", "009": "Oceania", "019": "Americas", "142": "Asia", "150": "Europe"}
FAMILIES = {
    "aav": "Austroasiatic",
    "afa": "Afro-Asiatic",
    "alg": "Algonquian",
    "alv": "Atlantic-Congo",
    "azc": "Uto-Aztecan",
    "bat": "Baltic",
    "ber": "Berber",
    "bnt": "Bantu",
    "cau": "Caucasian",
    "ccn": "North Caucasian",
    "ccs": "Kartvelian",
    "cdc": "Chadic",
    "cel": "Celtic",
    "cpe": "English-based creole",
    "cpf": "French-based creole",
    "cpp": "Portuguese-based creole",
    "cus": "Cushitic",
    "dmn": "Mande",
    "dra": "Dravidian",
    "esx": "Eskimo-Aleut",
    "fiu": "Finno-Ugric",
    "gem": "Germanic",
    "gmq": "North Germanic",
    "gmw": "West Germanic",
    "grk": "Hellenic",
    "iir": "Indo-Iranian",
    "inc": "Indo-Aryan",
    "ine": "Indo-European",
    "ira": "Iranian",
    "itc": "Italic",
    "map": "Austronesian",
    "mkh": "Mon-Khmer",
    "myn": "Mayan",
    "nic": "Niger-Congo",
    "phi": "Philippine",
    "poz": "Malayo-Polynesian",
    "pqe": "Oceanic",
    "roa": "Romance",
    "sem": "Semitic",
    "sit": "Sino-Tibetan",
    "sla": "Slavic",
    "smi": "Sami",
    "ssa": "Nilo-Saharan",
    "tai": "Tai",
    "tbq": "Tibeto-Burman",
    "trk": "Turkic",
    "tup": "Tupian",
    "urj": "Uralic",
    "xgn": "Mongolic",
    "zhx": "Sinitic",
    "zle": "East Slavic",
    "zls": "South Slavic",
    "zlw": "West Slavic",
}


def tidy(label: str) -> str:
    """One plain spelling: typewriter apostrophes, "and", "Saint"."""
    return label.replace("\u2019", "'").replace(" & ", " and ").replace("St. ", "Saint ").strip()


def rename(label: str) -> str:
    """The label of a language, script or currency."""
    return RENAMED.get(tidy(label), tidy(label))


def fold(label: str) -> str:
    """A label without accents and punctuation, to see that two spellings are one."""
    plain = unicodedata.normalize("NFKD", label)
    return "".join(c for c in plain if c.isalnum()).casefold()


class Sources:
    """The raw tables of the three packages, and readable names for their codes."""

    def __init__(self, cldr: Path) -> None:
        self.cldr = cldr / "supplemental"
        self.english = Locale("en")
        self.containment = self.read("territoryContainment")["territoryContainment"]
        info: dict[str, dict[str, Any]] = {}
        for file in sorted(files("countryinfo").joinpath("data").iterdir(), key=lambda f: f.name):
            if file.name.endswith(".json"):
                record = json.loads(file.read_text("utf-8"))
                code = record["ISO"].get("alpha2")
                if code and (code not in info or len(record) > len(info[code])):
                    info[code] = record
        self.info = info
        regions = [r for c in CONTINENTS for r in self.containment[c]["_contains"] if r.isdigit()]
        self.region_of = {t: r for r in regions for t in self.containment[r]["_contains"]}
        self.countries = {
            code: tidy(COUNTRY_NAMES.get(code, self.english.territories[code]))
            for code in sorted(self.region_of)
            if code not in UNINHABITED | NOT_COUNTRIES and code in self.english.territories
        }

    def read(self, name: str) -> dict[str, Any]:
        """One supplemental table of CLDR."""
        table: dict[str, Any] = json.loads((self.cldr / f"{name}.json").read_text("utf-8"))["supplemental"]
        return table

    def capital(self, code: str) -> str | None:
        """The capital's label, or none where country and capital are one."""
        if code in CAPITALS:
            return CAPITALS[code]
        capital = self.info.get(code, {}).get("capital")
        return tidy(capital) if capital else None

    def language(self, code: str) -> str | None:
        """The English name of a language, whatever script the code adds."""
        name = self.english.languages.get(code.split("_")[0])
        return rename(name) if name else None


def borders(src: Sources) -> Iterator[Fact]:
    """Land borders, both directions."""
    alpha3 = {record["ISO"]["alpha3"]: code for code, record in src.info.items()} | {"XKX": "XK"}
    wrong = BORDERS_WRONG | {(b, a) for a, b in BORDERS_WRONG}
    pairs = {(a, b) for a, code in alpha3.items() for b in src.info.get(code, {}).get("borders") or []}
    pairs = {(a.replace("KOS", "XKX"), b.replace("KOS", "XKX")) for a, b in pairs} - wrong | BORDERS_MISSING
    for a, b in sorted(pairs | {(b, a) for a, b in pairs}):
        head, tail = (src.countries.get(alpha3.get(x, "")) for x in (a, b))
        if head and tail:
            yield head, "borders", tail


def geography(src: Sources) -> Iterator[Fact]:
    """Region, continent, capital, memberships, calling-code zone."""
    name = {r: tidy(src.english.territories[r]) for r in set(src.region_of.values())}
    continent_of = {r: label for c, label in CONTINENTS.items() for r in src.containment[c]["_contains"]}
    for region, label in sorted(name.items()):
        yield label, "part of", continent_of[region]
    for code, country in src.countries.items():
        region = src.region_of[code]
        yield country, "in region", name[region]
        yield country, "in continent", continent_of[region]
        capital = src.capital(code)
        if capital:
            yield country, "has capital", capital
        for group, label in (("EU", "European Union"), ("UN", "United Nations")):
            if code in src.containment[group]["_contains"]:
                yield country, "member of", label
        digit = CALLING_CODES.get(code) or (src.info.get(code, {}).get("callingCodes") or [""])[0][:1]
        if digit:
            yield country, "in calling-code zone", f"Zone {digit} ({CALLING_ZONES[digit]})"


def languages(src: Sources) -> Iterator[Fact]:
    """Official, regional and other widely spoken languages; each language's script and family."""
    relation = {
        "official": "official language",
        "de_facto_official": "official language",
        "official_regional": "regional language",
    }
    used: dict[str, str] = {}
    territories = src.read("territoryInfo")["territoryInfo"]
    for code, country in src.countries.items():
        best: dict[str, str] = {}
        for language, about in territories.get(code, {}).get("languagePopulation", {}).items():
            base = language.split("_")[0]
            label = None if base in NOT_SPOKEN else src.language(base)
            status = None if (code, base) in NOT_OFFICIAL else about.get("_officialStatus")
            if label and (status or float(about["_populationPercent"]) >= SPOKEN_FROM):
                used[base] = label
                best[label] = min(best.get(label, LAST), str(status or LAST))
        for label, status in best.items():
            yield country, relation.get(status, "also speaks"), label
    likely = src.read("likelySubtags")["likelySubtags"]
    for code, label in sorted(used.items()):
        if code in likely:
            script = src.english.scripts.get(likely[code].split("-")[1])
            if script:
                yield label, "written in", rename(f"{script} script")
    yield from families(src, used)


def families(src: Sources, used: dict[str, str]) -> Iterator[Fact]:
    """Language families and what they are branches of, as far as their codes have a name here."""
    groups = src.read("languageGroups")["languageGroups"]
    parent = {child: group for group, children in groups.items() for child in children.split()}

    def family(code: str) -> str | None:
        while code in parent:
            code = parent[code]
            if code in FAMILIES:
                return code
        return None

    todo, seen = [(label, family(code)) for code, label in sorted(used.items())], set[str]()
    while todo:
        label, group = todo.pop(0)
        if group is None:
            continue
        yield label, "of language family", f"{FAMILIES[group]} languages"
        if group not in seen:
            seen.add(group)
            todo.append((f"{FAMILIES[group]} languages", family(group)))


def currencies(src: Sources) -> Iterator[Fact]:
    """Currencies in use, those of the past that more than one country had, and what kind each is."""
    region = src.read("currencyData")["currencyData"]["region"]
    now: dict[str, set[str]] = defaultdict(set)
    past: dict[str, set[str]] = defaultdict(set)
    for code in src.countries:
        for entry in region.get(code, []):
            for currency, about in entry.items():
                if about.get("_tender") != "false":
                    current = about.get("_to", "9999") > AS_OF and about.get("_from", "9999") <= AS_OF
                    (now if current else past)[currency].add(code)
    name = {c: rename(src.english.currencies[c]) for c in {*now, *past} if c in src.english.currencies}
    kept = set(now)
    for currency, codes in sorted(now.items()):
        for code in sorted(codes):
            yield src.countries[code], "uses currency", name[currency]
    for currency, codes in sorted(past.items()):
        codes -= now.get(currency, set())
        if currency in name and len(codes) + len(now.get(currency, ())) > 1:
            kept.add(currency)
            for code in sorted(codes):
                yield src.countries[code], "formerly used currency", name[currency]
    kind = {c: name[c].split(" (")[0].split()[-1] for c in kept if len(name[c].split()) > 1}
    shared = Counter(kind.values())
    for currency, label in sorted(kind.items()):
        if shared[label] > 1:
            yield name[currency], "is a kind of", label.lower()


def habits(src: Sources) -> Iterator[Fact]:
    """The first day of the week and the clock."""
    first = src.read("weekData")["weekData"]["firstDay"]
    clock = src.read("timeData")["timeData"]
    for code, country in src.countries.items():
        if code in first:
            yield country, "week starts on", DAYS[first[code]]
        if code in clock:
            hours = "24-hour clock" if clock[code]["_preferred"] == "H" else "12-hour clock"
            yield country, "tells time by", hours


def offset(zone: str) -> str:
    """The standard (winter) offset of a zone."""
    year = int(AS_OF[:4])
    seasons = [datetime(year, month, 1, tzinfo=ZoneInfo(zone)).utcoffset() for month in (1, 7)]
    minutes = min(int(o.total_seconds()) // 60 for o in seasons if o is not None)
    return f"UTC{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def time_zones(src: Sources) -> Iterator[Fact]:
    """Offsets of countries, of their capitals and of the places that time zones are named after."""
    zones = get_global("territory_zones")
    for code, country in src.countries.items():
        offsets = {zone: offset(zone) for zone in zones.get(code, []) if zone not in NO_ZONES}
        capital = src.capital(code)
        for hours in sorted(set(offsets.values())):
            yield country, "has time zone", hours
        if capital and len(set(offsets.values())) == 1:
            yield capital, "has time zone", next(iter(offsets.values()))
        for zone, hours in offsets.items():
            place = tidy(src.english.time_zones.get(zone, {}).get("city") or zone.split("/")[-1]).replace("_", " ")
            place = PLACES.get(place, place)
            if place == capital:
                yield capital, "has time zone", hours
            elif is_place(place, country, capital, src):
                yield place, "located in", country
                yield place, "has time zone", hours


def is_place(place: str, country: str, capital: str | None, src: Sources) -> bool:
    """Whether a zone's name adds a place of its own: no country, no capital spelt otherwise, no hamlet."""
    if place in NO_PLACES or "," in place or place in country or place in src.countries.values():
        return False
    ours, theirs = fold(place), fold(capital or "-")
    return not theirs or (ours not in theirs and theirs not in ours)


def split(facts: list[Fact]) -> list[str]:
    """train, valid or test for each fact; the two directions of a symmetric pair are dealt as one."""
    units: dict[Any, list[int]] = defaultdict(list)
    for i, (head, relation, tail) in enumerate(facts):
        units[(frozenset((head, tail)), relation)].append(i)
    left = Counter(symbol for h, r, t in facts for symbol in (("e", h), ("r", r), ("e", t)))
    order = list(units.values())
    np.random.default_rng(SEED).shuffle(order)
    where, wanted = ["train"] * len(facts), round(HELD_OUT * len(facts))
    dealt = Counter[str]()
    for unit in order:
        uses = Counter(s for i in unit for s in zip("ere", facts[i], strict=True))
        into = min(("valid", "test"), key=lambda name: dealt[name])
        if dealt[into] >= wanted:
            break
        if facts[unit[0]][1] in TRAIN_ONLY or any(left[s] <= n for s, n in uses.items()):
            continue
        left -= uses
        dealt[into] += len(unit)
        for i in unit:
            where[i] = into
    return where


def build(cldr: Path) -> list[tuple[str, str, str, str]]:
    """All facts with their split, sorted."""
    src = Sources(cldr)
    parts = (borders, geography, languages, currencies, habits, time_zones)
    facts = sorted({fact for part in parts for fact in part(src) if fact[0] != fact[2]})
    return [(*fact, where) for fact, where in zip(facts, split(facts), strict=True)]


def main() -> None:
    """Write the graph to the file named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cldr", type=Path, required=True, help="folder of the unpacked cldr-core package")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    given = parser.parse_args()
    rows = build(given.cldr)
    lines = ["\t".join(row) for row in [("head", "relation", "tail", "split"), *rows]]
    given.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
