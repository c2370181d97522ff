"""``data.on_error``, and image folders that change under a run: named, or replaced; always full."""

import json
import multiprocessing
import os
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from simco_methods.config.schema import check_config
from simco_methods.data import ImageSet, UnreadableImage, readable_only
from simco_methods.data.readable import leave_out_unreadable, left_out_line
from tests.data.pictures import (
    SIZE,
    apart,
    encoded,
    loaders,
    trained_on,
    validated_on,
    write,
)
from tests.helpers import compose_config

LOADERS = pytest.mark.parametrize("loader", ["workers", "device"])
EMPTY = "png", b""


def shade(number, size=SIZE):
    from PIL import Image

    return "png", encoded(Image.new("RGB", size, (20 * number,) * 3), "PNG")


def shades(folder, count=6, bad=()):
    return write(folder, *(EMPTY if number in bad else shade(number) for number in range(count)))


def epoch(data, number=0):
    loader = data.train_dataloader()
    loader.sampler.set_epoch(number)
    return [(indices.tolist(), labels.tolist()) for indices, _, labels in loader]


def test_the_setting_is_raise_or_skip():
    with pytest.raises(ValueError, match="data.on_error='ignore': must be .*raise.*skip"):
        check_config(compose_config("digits/simco", "+data.on_error=ignore"))


@LOADERS
def test_what_is_left_out_leaves_full_batches(loader, tmp_path):
    images = shades(tmp_path, 10, bad=(0, 4))
    kept, left_out = leave_out_unreadable(images)
    assert left_out == {"0.png": "it is empty", "4.png": "it is empty"}
    assert kept.labels.tolist() == [1, 2, 3, 5, 6, 7, 8, 9] and kept.classes == images.classes
    batches = epoch(loaders(kept, loader, batch_size=4))
    assert [len(labels) for _, labels in batches] == [4, 4]
    assert sorted(sum((labels for _, labels in batches), [])) == kept.labels.tolist()
    with pytest.raises(ValueError, match="one batch needs 9 images .*, the data has 8"):
        loaders(kept, loader, batch_size=9).check_size(1)


def test_both_loaders_see_the_same_images(tmp_path):
    kept, _ = leave_out_unreadable(shades(tmp_path, 10, bad=(3, 9)))
    one, other = (epoch(loaders(kept, loader, 4), 3) for loader in ("workers", "device"))
    assert one == other


def test_what_is_known_is_left_out_without_a_look(tmp_path, monkeypatch):
    images = shades(tmp_path / "one", bad=(1,))
    kept, left_out = leave_out_unreadable(images)
    os.rename(tmp_path / "one", tmp_path / "two")
    moved = ImageSet(
        [p.replace("one", "two") for p in images.images], images.labels, images.classes
    )
    monkeypatch.setattr(ImageSet, "load", None)
    again, known = leave_out_unreadable(moved, left_out)
    assert known == left_out and again.digest() == kept.digest() != images.digest()


def test_arrays_are_left_as_they_are():
    images = ImageSet(np.zeros((3, 2, 2, 3), np.uint8), np.zeros(3, np.int64), ["a"])
    assert leave_out_unreadable(images) == (images, {})
    assert readable_only([images, None], Path("/nowhere/record.json")) == ([images, None], [])


def test_nothing_that_can_be_read_is_an_error(tmp_path):
    with pytest.raises(UnreadableImage, match="0.png: it is empty; nor can any .* the 3 images"):
        leave_out_unreadable(shades(tmp_path, 3, bad=range(3)))


def test_the_line_that_says_what_is_left_out():
    one = {"cat/a\n.png": "it is empty"}
    line = r"1 of 1,000 images cannot be read and is left out: cat/a\n.png (it is empty)"
    assert left_out_line(one, 1000) == line
    many = {f"{number}.png": "it is empty" for number in range(5)}
    line = left_out_line(many, 2000)
    assert line.startswith("5 of 2,000 images cannot be read and are left out: 0.png (it is empty)")
    assert line.endswith("2.png (it is empty), and 2 more")


def _once(folder, record, results, start):
    images = ImageSet(
        sorted(str(path) for path in Path(folder).iterdir()), np.arange(6), list("abcdef")
    )
    decoded, load = [], ImageSet.load
    ImageSet.load = lambda self, index: decoded.append(index) or load(self, index)
    start.wait()
    (kept, none), lines = readable_only([images, None], Path(record))
    results.put((len(decoded), kept.labels.tolist(), none, lines))


def test_one_process_of_a_run_looks_and_the_others_know(tmp_path):
    shades(tmp_path / "images", bad=(2, 3))
    record = tmp_path / "run" / "unreadable.json"
    context = multiprocessing.get_context("fork")
    results, start = context.Queue(), context.Event()
    arguments = tmp_path / "images", record, results, start
    processes = [context.Process(target=_once, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    start.set()
    found = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    line = "2 of 6 images cannot be read and are left out: 2.png (it is empty), 3.png (it is empty)"
    assert sorted(count for count, *_ in found) == [0, 6]
    assert all(rest == [[0, 1, 4, 5], None, [line]] for _, *rest in found)
    assert list(json.loads(record.read_text()).values()) == [
        {"2.png": "it is empty", "3.png": "it is empty"}
    ]


def test_a_later_start_leaves_out_the_same_and_other_images_are_looked_at(tmp_path):
    record = tmp_path / "unreadable.json"
    images = shades(tmp_path / "one", bad=(2,))
    (first, _), _ = readable_only([images, None], record)
    write(tmp_path / "one", *map(shade, range(6)))  # mended
    (again, other), lines = readable_only([images, shades(tmp_path / "two", 4, bad=(0,))], record)
    assert again.digest() == first.digest() and other.labels.tolist() == [1, 2, 3]
    assert [line[:6] for line in lines] == ["1 of 6", "1 of 4"]


# Folders that change after they were listed, and found readable.


@LOADERS
@pytest.mark.parametrize("read", [trained_on, validated_on])
def test_an_image_that_vanishes_is_named_or_its_place_taken(read, loader, tmp_path):
    images = shades(tmp_path)
    kept, _ = leave_out_unreadable(images)
    for gone in (2, 3, 5):
        os.remove(images.images[gone])
    with pytest.raises(UnreadableImage, match="[235].png: No such file"):
        read(loaders(images, loader))
    with pytest.warns(UserWarning, match="the next image takes its place") as given:
        pixels, labels = read(loaders(kept, loader))
    assert labels == [0, 1, 4, 4, 4, 0]
    assert pixels[:, 0, 0, 0].tolist() == [20 * label for label in labels]
    said = [str(warning.message) for warning in given]
    assert sorted(line.split(": ")[0][-5:] for line in said) == ["2.png", "3.png", "5.png"]
    assert sorted(line.split("number ")[1] for line in said) == [
        f"{number} of 6 that can no longer be read)" for number in (1, 2, 3)
    ]


def test_each_lost_image_is_warned_of_once_by_all_workers(tmp_path, capfd):
    kept, _ = leave_out_unreadable(shades(tmp_path, 8))
    os.remove(kept.images[5])
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_: os.write(2, f"{message}\n".encode())
        warnings.simplefilter("always")
        loader = loaders(kept, "workers", batch_size=4, workers=2).train_dataloader()
        try:
            for number in range(3):
                loader.sampler.set_epoch(number)
                seen = Counter(label for *_, labels in loader for label in labels.tolist())
                assert seen == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 6: 2, 7: 1}
        finally:
            loader._iterator._shutdown_workers()
    assert capfd.readouterr().err.count("5.png: No such file") == 1


def test_the_place_of_a_lost_image_has_views_of_its_own(tmp_path):
    """Its neighbour's draws again would be two equal images in a batch."""
    kept, _ = leave_out_unreadable(shades(tmp_path))
    ramp = np.arange(256 * 3, dtype=np.uint8).reshape(16, 16, 3)
    from PIL import Image

    Path(kept.images[1]).write_bytes(encoded(Image.fromarray(ramp), "PNG"))
    os.remove(kept.images[0])
    data = loaders(kept, "workers")
    data.cfg.augmentations[0].rrc = {"enabled": True, "crop_min_scale": 0.1, "crop_max_scale": 0.5}
    with pytest.warns(UserWarning, match="0.png"):
        pixels, labels = trained_on(data)
    assert labels[:2] == [1, 1] and apart(pixels[0], pixels[1]) > 20


@LOADERS
def test_no_image_left_ends_the_run(loader, tmp_path):
    kept, _ = leave_out_unreadable(shades(tmp_path, 3))
    for path in kept.images:
        os.remove(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(UnreadableImage, match="nor can any other image be read any more"):
            trained_on(loaders(kept, loader))


@LOADERS
def test_an_image_that_is_replaced_by_one_of_another_size_is_right(loader, tmp_path):
    images = shades(tmp_path)
    Path(images.images[3]).write_bytes(shade(9, (5, 40))[1])
    for read in (trained_on, validated_on):
        pixels, labels = read(loaders(images, loader))
        assert apart(pixels[3], np.full((16, 16, 3), 180)) <= 1 and labels == list(range(6))


@pytest.mark.parametrize("size", [(12, 15), (17, 15), (15, 17)])
def test_an_image_that_changes_between_header_and_pixels(size, tmp_path, monkeypatch):
    """While the device loader reads: right if it has its place there, else named."""
    images = shades(tmp_path)
    Path(images.images[3]).write_bytes(shade(9, size)[1])
    monkeypatch.setattr(ImageSet, "size", lambda self, index: SIZE)
    data = loaders(images, "device")
    if max(size) > 16:
        why = f"3.png: it is {size[0]} x {size[1]} pixels large, .* header said 16 x 16"
        with pytest.raises(UnreadableImage, match=why):
            trained_on(data)
        return
    pixels, _ = trained_on(data)
    assert apart(pixels[3], np.full((16, 16, 3), 180)) <= 1
    assert data.resident.sizes[3].tolist() == [15, 12]


def test_images_on_the_device_stay_when_their_files_vanish(tmp_path):
    data = loaders(shades(tmp_path), "device")
    first = trained_on(data)
    for path in data.train.images:
        os.remove(path)
    assert np.array_equal(trained_on(data)[0], first[0])


def test_a_scan_of_many_files_keeps_few_calls_waiting(monkeypatch, tmp_path):
    import simco_methods.data.resident as resident

    monkeypatch.setattr(resident, "_CHUNK", 4)
    kept, left_out = leave_out_unreadable(shades(tmp_path, 11, bad=(3, 4, 10)))
    assert kept.labels.tolist() == [0, 1, 2, 5, 6, 7, 8, 9] and len(left_out) == 3
