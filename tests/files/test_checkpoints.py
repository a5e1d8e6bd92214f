"""Checkpoints: a run that is killed at any moment finds the newest good one; one process per run folder."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kgem.errors import ArtifactError, Damaged, InputError, RunBusy
from kgem.files.checkpoints import Checkpoints, read_checkpoint
from kgem.files.locks import lock_run
from kgem.files.store import FileRecord, system_error, write_group, write_store


def state(step: int) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What a run might hold at this step: to be found again, or known to be wrong."""
    noise = torch.Generator().manual_seed(step)
    tables = {"point/entities": torch.randn(40, 8, generator=noise), "em/log_std": torch.randn(9, generator=noise)}
    return tables | {"noise": noise.get_state()}, {"progress": {"step": step, "best": 1 / (step + 3)}}


def save(checkpoints: Checkpoints, *steps: int) -> None:
    for step in steps:
        checkpoints.save(*state(step), step)


def loaded(checkpoints: Checkpoints) -> tuple[int, list[str]]:
    """The step of the newest good checkpoint, after a look at all of its content, and the warnings."""
    found = checkpoints.load_newest()
    assert found is not None
    kept, warnings = found
    step = kept.documents["progress"]["step"]
    tensors, documents = state(step)
    assert kept.documents == documents
    assert kept.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert kept.tensors[name].dtype == tensor.dtype
        assert torch.equal(kept.tensors[name], tensor)
    return step, warnings


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_keeps_the_newest(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.load_newest() is None
    for step in (0, 7, 12, 1_000_000):
        save(checkpoints, step)
        assert loaded(checkpoints) == (step, [])
    assert names(tmp_path / "checkpoints") == ["000012", "1000000"]


def test_bounds(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="step -1"):
        save(Checkpoints(tmp_path), -1)


def test_any_damage_to_the_newest_falls_back_and_says_so(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3, 5)
    for path in (tmp_path / "000005").iterdir():
        good = path.read_bytes()
        flip(path)
        step, [warning] = loaded(checkpoints)
        assert step == 3
        assert "damaged checkpoint" in warning
        assert str(tmp_path / "000005") in warning
        path.unlink()
        assert loaded(checkpoints)[0] == 3
        path.write_bytes(good)
    assert loaded(checkpoints) == (5, [])


def test_all_damaged(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3, 5)
    for generation in ("000003", "000005"):
        flip(tmp_path / generation / "point.safetensors")
    with pytest.raises(ArtifactError, match=r"(?s)all checkpoints are damaged.*000005.*000003.*fit again"):
        checkpoints.load_newest()


def give_part(checkpoints: Checkpoints, step: int, *, fails: bool = False) -> None:
    """A checkpoint of which somebody else writes a part."""
    tensors, documents = state(step)
    theirs = {"em/log_std": tensors.pop("em/log_std")}

    def others(folder: Path) -> Callable[[], dict[str, FileRecord]]:
        assert not list(folder.iterdir())  # they write at the same time

        def wait() -> dict[str, FileRecord]:
            if fails:
                raise ArtifactError("process 1 is full", where=str(folder), remedy="make room")
            return {"em.safetensors": write_group(folder, "em", {"log_std": theirs["em/log_std"]})}

        return wait

    checkpoints.save(tensors, documents, step, others)


@pytest.mark.parametrize("harm", ["flipped", "missing"])
def test_a_checkpoint_counts_when_all_of_its_parts_are_there(tmp_path: Path, harm: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3)
    give_part(checkpoints, 5)
    assert loaded(checkpoints) == (5, [])
    store = read_checkpoint(tmp_path / "000005", lambda group: group != "em")
    assert store.tensors.keys() == {"point/entities", "noise"} and store.manifest.version == 2
    with pytest.raises(ArtifactError, match="process 1 is full"):
        give_part(checkpoints, 7, fails=True)
    assert loaded(checkpoints) == (5, []) and names(tmp_path) == ["000003", "000005"]
    flip(tmp_path / "000005" / "em.safetensors") if harm == "flipped" else (tmp_path / "000005/em.safetensors").unlink()
    step, [warning] = loaded(checkpoints)
    assert step == 3 and "em.safetensors" in warning


def test_others_are_heard_out_when_the_first_cannot_write(tmp_path: Path) -> None:
    """They wait for it; then the checkpoint before is there still."""
    checkpoints, heard = Checkpoints(tmp_path), []
    save(checkpoints, 3)

    def others(folder: Path) -> Callable[[], dict[str, FileRecord]]:
        (folder / "point.safetensors").mkdir()  # in the way of a file of the first
        return lambda: heard.append(folder) or {}

    with pytest.raises(ArtifactError):
        checkpoints.save(*state(4), 4, others)
    assert len(heard) == 1 and loaded(checkpoints) == (3, [])
    with pytest.raises(ArtifactError) as caught:
        write_group(tmp_path / "nowhere", "em", {"x": torch.ones(2)})
    assert isinstance(caught.value.__cause__, Exception) and system_error(caught.value.__cause__) == errno.ENOENT


def test_a_newer_format_is_not_damage(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3)
    write_store(tmp_path / "000004", *state(4), kind="checkpoint", version=99)
    with pytest.raises(ArtifactError, match="newer kgem") as caught:
        checkpoints.load_newest()
    assert not isinstance(caught.value, Damaged)


@pytest.mark.parametrize("harm", ["flipped", "no manifest", "empty"])
@pytest.mark.parametrize("next_step", [4, 5, 6])
def test_after_falling_back_two_good_ones_are_kept_again(tmp_path: Path, harm: str, next_step: int) -> None:
    """The damaged one must not take the place of a good one, whatever step the run saves next."""
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 1, 3, 5)
    if harm == "flipped":
        flip(tmp_path / "000005" / "em.safetensors")
    else:
        keep = () if harm == "empty" else ("em.safetensors",)
        for path in (tmp_path / "000005").iterdir():
            if path.name not in keep:
                path.unlink()
    assert loaded(checkpoints)[0] == 3
    save(checkpoints, next_step)
    assert loaded(checkpoints) == (next_step, [])
    flip(tmp_path / f"{next_step:06d}" / "em.safetensors")
    step, warnings = loaded(checkpoints)
    assert (step, len(warnings)) == (3, 1)


def test_a_run_begun_anew_does_not_find_the_old_ones(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 20, 30)
    save(checkpoints, 1)
    assert loaded(checkpoints) == (1, [])
    assert names(tmp_path) == ["000001"]


def test_leftovers_of_killed_writes_go(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3, 5)
    (tmp_path / ".000007.kgem-tmp").mkdir()
    (tmp_path / ".000007.kgem-tmp" / "em.safetensors").write_bytes(b"half")
    (tmp_path / "000005").rename(tmp_path / ".000005.kgem-old")  # killed while it saved step 5 again
    assert loaded(checkpoints) == (5, [])
    save(checkpoints, 8)
    assert names(tmp_path) == ["000005", "000008"]


def test_a_full_disk_leaves_the_last_good_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 3, 5)

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for step in (5, 6):
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(ArtifactError, match="disk is full"):
                save(checkpoints, step)
        assert loaded(checkpoints) == (5, [])
        assert names(tmp_path) == ["000003", "000005"]
    save(checkpoints, 6)
    assert loaded(checkpoints) == (6, [])


DRIVER = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import test_checkpoints as t

checkpoints = t.Checkpoints(Path(sys.argv[2]) / "checkpoints")
dice, step, inside = random.Random(int(sys.argv[3])), 0, 0
t.save(checkpoints, step)
for _ in range(8):
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        for turn in range(10_000):
            step += turn % 2  # every other time the same step again: a folder is replaced
            os.write(write_end, f"begun {step};".encode())
            t.save(checkpoints, step)
            os.write(write_end, f"saved {step};".encode())
    os.close(write_end)
    log = ""
    while log.count("saved") < 2:
        log += os.read(read_end, 1000).decode()
    time.sleep(dice.uniform(0, 0.1))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    log += os.read(read_end, 1 << 16).decode()
    os.close(read_end)
    records = [record.split() for record in log.split(";")[:-1]]
    begun, saved = (max(int(s) for what, s in records if what == kind) for kind in ("begun", "saved"))
    inside += records[-1][0] == "begun"
    found, warnings = t.loaded(checkpoints)  # looks at all of the content
    assert not warnings, warnings
    assert found in (saved, begun), (found, saved, begun)  # nothing that `save` came back from is lost
    step = found
print(step, inside)
"""


def test_kill_nine_while_saving(tmp_path: Path) -> None:
    """SIGKILL at random moments of a loop of saves: always the state saved last, whole."""
    command = [sys.executable, "-c", DRIVER, str(Path(__file__).parent), str(tmp_path), "5"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    step, inside = map(int, done.stdout.split())
    assert step >= 8
    assert inside >= 3  # killed inside of a save


LOCKER = """
import sys
from pathlib import Path
from kgem.files.locks import lock_run
with lock_run(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def start_locker(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", LOCKER, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_a_second_process_is_refused_until_the_first_has_died(tmp_path: Path) -> None:
    with start_locker(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(RunBusy) as caught, lock_run(tmp_path):
            pass
        assert f"process {first.pid} " in caught.value.what
        assert caught.value.where == str(tmp_path)
        assert caught.value.exit_code == 2
        first.send_signal(signal.SIGKILL)
        first.wait()
    with lock_run(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        with start_locker(tmp_path) as second:
            out, error = second.communicate(timeout=300)
        assert out == ""
        assert f"process {os.getpid()} is working in this run folder" in error
    with start_locker(tmp_path) as third:
        assert third.communicate(timeout=300)[0] == "locked\n"


def test_lock_is_let_go_after_an_error_and_holds_within_a_process(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), lock_run(tmp_path):
        _ = 1 / 0
    with lock_run(tmp_path), pytest.raises(RunBusy), lock_run(tmp_path):
        pass
    with lock_run(tmp_path):
        pass


def test_lock_of_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run folder"), lock_run(tmp_path / "typo"):
        pass
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArtifactError, match="cannot be locked: Not a directory"), lock_run(tmp_path / "file"):
        pass
    assert names(tmp_path) == ["file"]


def test_a_restored_generator_goes_on_the_same(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    torch.randn(5, generator=generator)  # an odd number: normal draws come in pairs, one is kept for later
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save({"noise": generator.get_state()}, {}, 0)
    kept = checkpoints.load_newest()
    assert kept is not None
    other = torch.Generator()
    other.set_state(kept[0].tensors["noise"])
    assert generator.get_state().dtype == torch.uint8
    for _ in range(3):
        assert torch.equal(torch.randn(7, generator=other), torch.randn(7, generator=generator))
        assert torch.equal(torch.randperm(9, generator=other), torch.randperm(9, generator=generator))
