"""Writes docs/settings.md from the settings of the code: run it whenever src/kgem/config.py has changed."""

from __future__ import annotations

from pathlib import Path

from kgem.settings import settings_page

if __name__ == "__main__":
    (Path(__file__).parents[1] / "docs" / "settings.md").write_text(settings_page(), encoding="utf-8")
