"""Whether several processes see one folder, and what becomes of a part that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from kgem.errors import ArtifactError
from kgem.model.processes import Processes
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, start_fit
from kgem.runs.parts import _hear_of_parts, look_for_folder, write_part
from obvious import random_graph
from together import in_threads


@pytest.mark.parametrize("there", [True, False])
def test_processes_find_out_whether_they_see_one_folder(tmp_path: Path, there: bool) -> None:
    folder = tmp_path if there else tmp_path / "on another machine"

    def work(processes: Processes) -> bool:
        look_for_folder(None if processes.rank else folder, processes)
        return processes.in_one_folder

    assert in_threads(3, work) == [there] * 3 and not list(tmp_path.iterdir())


def test_the_first_hears_why_a_part_could_not_be_written(tmp_path: Path, one_thread: None) -> None:
    config = configure(None, {"model": {"dim": 3}})

    def work(processes: Processes) -> str:
        phases = start_fit(Prepared(random_graph(), None), config, 0.0, processes=processes).phases
        if processes.rank == 0:
            with pytest.raises(ArtifactError) as caught:
                _hear_of_parts(processes, tmp_path)
            return caught.value.message
        write_part(phases, ["part", str(tmp_path / "nowhere")], processes)
        return ""

    message, _ = in_threads(2, work)
    assert "process 1 of 2 could not write its part: No such file or directory" in message
