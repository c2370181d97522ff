"""Long work is named while it lasts: by a bar on a terminal, elsewhere by a line now and then."""

import io
import threading
import time
from types import SimpleNamespace

import pytest

from simco_methods import progress
from simco_methods.progress import Progress, duration, track


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when they are told to."""
    now = [1000.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def wait(seconds):
        now[0] += seconds

    return wait


@pytest.fixture
def quick(monkeypatch):
    """Lines of phases from 0.1 s on, every 0.3 s."""
    monkeypatch.setattr(progress, "SHORT_SECONDS", 0.1)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.3)
    monkeypatch.setattr(progress, "_LOOK_SECONDS", 0.02)


def test_a_phase_below_two_seconds_says_nothing(clock, capfd):
    for _ in track(range(10), "reading images"):
        clock(0.19)
    with Progress("drawing the map"):
        pass
    assert capfd.readouterr() == ("", "")


def test_a_longer_one_says_how_far_it_is_every_half_minute(clock, capfd):
    items = track(iter(range(1000)), "reading images", 1000)
    assert [item for item in items if not clock(0.125)] == list(range(1000))
    out, err = capfd.readouterr()
    assert out == "" and err.splitlines() == [
        "reading images: 16/1,000 images (2%), 2 min left",
        "reading images: 256/1,000 images (26%), 2 min left",
        "reading images: 496/1,000 images (50%), 63 s left",
        "reading images: 736/1,000 images (74%), 33 s left",
        "reading images: 976/1,000 images (98%), 3 s left",
    ]


def test_what_is_taken_up_again_counts_on(clock, capfd):
    bar = Progress("extracting features", 1_000, done=900)
    clock(3)
    bar.update(50)
    said = "extracting features: 950/1,000 images (95%), 3 s left\n"
    assert capfd.readouterr().err == said


def test_one_whose_end_is_not_known_counts(clock, capfd):
    for _ in track(iter(range(3)), "listing images"):
        clock(1)
    assert capfd.readouterr().err == "listing images: 2 images\n"


def test_one_that_counts_nothing_says_that_time_passes(quick, capfd):
    with Progress("drawing the map"):
        time.sleep(0.8)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 2 and lines[0] == "drawing the map: 0 s"


def test_a_terminal_has_a_bar(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    for _ in track(range(3), "reading images"):
        time.sleep(0.12)
    assert "reading images:" in stream.getvalue() and " images/s" in stream.getvalue()
    assert "\n" not in stream.getvalue()  # nothing is left of it


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "SLURM_PROCID"])
def test_other_processes_are_silent(name, quick, monkeypatch, capfd):
    monkeypatch.setenv(name, "1")
    with Progress("drawing the map"):
        time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_nothing_is_left_of_it():
    before = threading.active_count()
    with pytest.raises(RuntimeError), Progress("drawing the map"):
        assert threading.active_count() == before + 1
        raise RuntimeError
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (89.4, "89 s"), (90, "2 min"), (5399, "90 min"), (9e3, "2.5 h")],
)
def test_durations(seconds, said):
    assert duration(seconds) == said
