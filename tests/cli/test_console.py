"""Output, errors and progress of the command line."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner

from kgem import errors
from kgem.answer.modes import AUTO, MODES
from kgem.cli import app, console, main, predict, progress
from kgem.errors import KgemError


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """kgem in a process of its own, as the console script starts it."""
    call = [sys.executable, "-c", "from kgem.cli import main; main()", *words]
    return subprocess.run(call, capture_output=True, text=True, env={**os.environ, **environment}, timeout=60)


def ending(error: BaseException, capsys: pytest.CaptureFixture[str]) -> tuple[object, str]:
    """Exit code and message for an error that a command raises."""
    with pytest.raises(SystemExit) as stop, console.report_errors():
        raise error
    said = capsys.readouterr()
    assert said.out == ""
    return stop.value.code, said.err


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kgem.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'polars', 'matplotlib', 'numpy', 'pandas', 'pooch'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "demo" in done.stdout and "data" in done.stdout


def commands() -> list[list[str]]:
    """Every command, as its words."""

    def walk(group: typer.Typer, path: list[str]) -> list[list[str]]:
        names = [each.name or each.callback.__name__ for each in group.registered_commands if each.callback]
        inner = [walk(each.typer_instance, [*path, each.name or ""]) for each in group.registered_groups]
        return [[*path, name] for name in names] + [words for found in inner if found for words in found]

    return walk(app, [])


def test_help_says_what_each_mode_is() -> None:
    option = inspect.signature(predict.predict, eval_str=True).parameters["mode"].annotation
    assert all(f"{name}: {what}" in option.__metadata__[0].help for name, what in MODES.items())
    assert get_args(option.__origin__) == (AUTO, *MODES)


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_of_every_command_has_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*words, "--help"])
    assert not stop.value.code
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"kgem {' '.join(words)}") for line in lines)


def test_help_of_an_argument_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Also with the lowest typer that is allowed (`make floors`): older ones leave it out where there is a metavar."""
    with pytest.raises(SystemExit):
        main(["compare", "--help"])
    assert "Folders of runs or models, two or more." in " ".join(capsys.readouterr().out.split())


ERRORS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, KgemError)]


@pytest.mark.parametrize("kind", ERRORS)
def test_own_errors_are_one_message_and_their_exit_code(
    kind: type[KgemError], capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ending(kind("is wrong", where="graph.tsv:3", remedy="put it right"), capsys)
    assert code == kind.exit_code == (2 if issubclass(kind, errors.InputError) else 1)
    assert said == "error: graph.tsv:3: is wrong\n  put it right\n"


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), MemoryError(), ZeroDivisionError("bug")])
def test_other_errors_fail_the_run_without_a_traceback(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = ending(error, capsys)
    assert code == 1
    assert said.startswith("error: ") and "Traceback" not in said


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KGEM_DEBUG", "1")
    code, said = ending(KgemError("is wrong"), capsys)
    assert code == 1 and "Traceback" in said and said.endswith("error: is wrong\n")


def test_wrong_usage_is_exit_code_2() -> None:
    for words in (["no-such-command"], ["data", "check"], ["data", "check", "world", "--no-such-option"]):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2


def test_control_characters_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    _, said = ending(KgemError("no \x1b[31m red, no \a bell, but Åland"), capsys)
    assert "\x1b" not in said and "\a" not in said
    assert "\\x1b[31m red" in said and "Åland" in said


def test_tables_take_labels_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    console.emit(console.table(["label", "n"], [("[bold]x[/bold] :smile:", 1234)]))
    out = capsys.readouterr().out
    assert "[bold]x[/bold] :smile:" in out and "1,234" in out


def test_json_is_pure_on_stdout_whatever_the_encoding() -> None:
    done = command("data", "fetch", "world", "--json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and "licence" in done.stderr
    assert json.loads(done.stdout)["entities"] == 1292


def unread(stream: str, *words: str) -> subprocess.CompletedProcess[str]:
    """kgem in a process of its own whose stdout or stderr nobody will ever read."""
    reader, writer = os.pipe()
    os.close(reader)
    call = [sys.executable, "-c", "from kgem.cli import main; main()", *words]
    streams: dict[str, int] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: writer}
    try:
        return subprocess.run(call, text=True, timeout=60, **streams)  # type: ignore[call-overload,no-any-return]
    finally:
        os.close(writer)


@pytest.mark.parametrize("words", [["data", "stats", "world", "--json"], ["data", "check", "world"]], ids=" ".join)
def test_a_reader_that_leaves_is_no_error(words: list[str]) -> None:
    done = unread("stdout", *words)
    # Where the machine is busy, reading says that it takes its time.
    said = [line for line in done.stderr.splitlines() if not line.endswith("so far")]  # progress, on a busy machine
    assert (done.returncode, said) == (0, [])


def test_a_reader_that_leaves_hides_no_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("a\tr\tb\na\tr\n")
    done = unread("stdout", "data", "check", str(bad))
    said = [line for line in done.stderr.splitlines() if not line.startswith("reading ")]
    assert done.returncode == 2 and said[0].startswith("error: ")


def test_messages_nobody_reads_leave_the_result_alone(tmp_path: Path) -> None:
    done = unread("stderr", "data", "fetch", "world", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["entities"] == 1292
    (tmp_path / "empty.tsv").write_text("")
    assert unread("stderr", "data", "check", str(tmp_path / "empty.tsv")).returncode == 2


def test_the_console_script_is_installed() -> None:
    script = Path(sys.executable).with_name("kgem")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("kgem ")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(progress, "BETWEEN_LINES", 0.02)


def test_quick_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.Progress("reading", expected=1):
        pass
    assert capsys.readouterr() == ("", "")


def wait_for(pattern: str, capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether messages come to say so, however long it takes; nothing may be said on stdout."""
    said = ""
    for _ in range(3000):
        out, err = capsys.readouterr()
        assert out == ""
        said += err
        if re.search(pattern, said):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.usefixtures("impatient")
def test_long_work_shows_lines_with_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with progress.Progress("counting", total=4) as counted:
        counted.advance(3)
        now = 6.0
        assert wait_for(r"counting.*75%.*\b2 s\b", capsys)
    with progress.Progress("guessing", expected=100):
        now += 1
        assert wait_for("guessing.*1%.*1 min 39 s", capsys)
    with progress.Progress("waiting"):
        assert wait_for("waiting.*under a second", capsys)


def test_a_guess_that_runs_out_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = progress.Progress("reading", expected=10)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 60)
    assert shown.share is not None and shown.share < 1
    assert "1 min 0 s" in shown.line and "%" not in shown.line


def test_downloads_count_each_file_anew() -> None:
    shown = progress.Progress("downloading")
    download = progress.Download(shown)
    for size in (100, 300):
        download.total = size
        download.update(size // 2)
        assert shown.share == 0.5
        download.reset()
        download.update(size)
        download.close()
        assert shown.share == 1.0


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.2, "under a second"),
        (1, "1 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert progress.duration(seconds) == said


@pytest.mark.parametrize("said", [None, "3"])
def test_numpy_has_one_thread_unless_somebody_says_otherwise(said: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", said or "")
    if said is None:
        monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    with pytest.raises(SystemExit):
        main(["--version"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == (said or "1")


def test_quiet_commands_show_no_progress_and_later_ones_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words, wanted in ((["fit", "nowhere.tsv", "--quiet"], False), (["runs", str(tmp_path)], True)):
        CliRunner().invoke(app, words)
        assert progress.Progress.is_wanted is wanted
    said: list[str] = []
    monkeypatch.setattr(progress, "say", said.append)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    for wanted in (False, True):
        monkeypatch.setattr(progress.Progress, "is_wanted", wanted)
        with progress.Progress("counting"):
            time.sleep(0.2)
        assert bool(said) == wanted
