"""Writes docs/settings.md from the settings of the code: run it whenever src/kgem/config.py has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kgem.config import NONE
from kgem.settings import SECTIONS, TOP, describe_allowed


def settings_page() -> str:
    """docs/settings.md: every setting with its default, bounds and meaning."""
    parts = [
        "# Settings",
        "Every setting has a default that works. Change some with `--set em.beta=0.3` (as often as needed), with a\n"
        'TOML file and `--config`, or in Python with `kgem.fit(data, em={"beta": 0.3})`. `none` stands for no value.\n'
        "The `config.toml` of a run folder is such a file, with all settings in it. `--recipe paper` starts from the\n"
        "paper's own recipe instead of the defaults.",
        "This page is written by `python tools/settings_page.py` from `src/kgem/config.py`.",
        "## At the top of the file",
        _table(TOP),
    ]
    for name, section in SECTIONS.items():
        parts += [f"## [{name}]", section.__doc__ or "", _table(section.model_fields, name)]
    return "\n\n".join(parts) + "\n"


def _table(fields: dict[str, FieldInfo], *section: str) -> str:
    rows = ["| setting | default | may be | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        assert field.default is not PydanticUndefined, f"{name} has no default"
        allowed, meaning = describe_allowed(*section, name), (field.description or "").replace("|", "/")
        rows.append(f"| `{name}` | `{_to_text(field.default)}` | {allowed} | {meaning} |")
    return "\n".join(rows)


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_to_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "settings.md").write_text(settings_page(), encoding="utf-8")
