"""Type hints as a user's mypy sees them: a script that is right passes strictly, each mistake is found."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
SETTINGS = """\
[mypy]
strict = true
[mypy-kgem.*]
follow_imports = silent
[mypy-torch.*,numpy.*,polars.*,pandas.*,pydantic.*,pyoxigraph.*,safetensors.*,zstandard.*,IPython.*]
follow_imports = skip
"""
USER = """\
import kgem

data = kgem.Dataset.load([("a", "r", "b"), ("b", "r", "a")])
model: kgem.Model = kgem.fit(data, dim=16, seed=1, threads=1, progress=False, em={"beta": 0.3})
mrr: float = model.evaluate().mrr
for answer in model.predict(head="a", relation="r", top=5):
    print(answer.label.upper(), answer.probability + 1.0)
label: str = model.predict(head="a", relation="r")[0].label
chances: list[float | None] = [fact.chance for fact in model.missing_facts(top=3)]
judged: list[str] = [j.head for j in model.judge([("a", "r", "b")])]
strength: float = model.strengths.entities["a"]
grown: kgem.Model = kgem.update(model, [("a", "r", "c")], remove=None)
kgem.export(model, "out", "huggingface")
try:
    kgem.load("models/none")
except kgem.KgemError as error:
    print(error.remedy)
reveal_type(model.predict_many([kgem.Query("a", "r")])[0][0].label)
reveal_type(model.similar("a")[0].cosine)
"""
WRONG = """\
kgem.fit(data, dim="16")
kgem.load(5)
model.predict(heads="a")
model.evaluate("test").mmr
model.predict(head="a", relation="r")[0].labels
kgem.export(model)
"""


@pytest.mark.slow
def test_hints_hold_in_a_users_code(tmp_path: Path) -> None:
    assert (SOURCE / "kgem" / "py.typed").is_file()
    (tmp_path / "mypy.ini").write_text(SETTINGS)
    (tmp_path / "user.py").write_text(USER + WRONG)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", os.devnull, "user.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(SOURCE)},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"^user\.py:(\d+): (\w+): (.*)$", done.stdout, flags=re.MULTILINE)
    good = USER.count("\n")
    assert [text for _, kind, text in found if kind == "note" and "Revealed" in text] == [
        'Revealed type is "str"',
        'Revealed type is "float"',
    ], done.stdout
    wrong = {int(line) for line, kind, _ in found if kind == "error"}
    assert wrong == set(range(good + 1, good + 1 + WRONG.count("\n"))), done.stdout
