"""Folders of every kind: links, loops, hidden, empty and odd entries, and what is said of them."""

import os
from pathlib import Path

import numpy as np
import pytest

from simco_methods.data import folder_images
from simco_methods.data.datasets import class_names
from simco_methods.data.folders import EXTENSIONS, image_files
from tests.data.pictures import encoded, rgb

PNG = encoded(rgb(), "PNG")


def fill(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PNG)
    return root


def labelled_folders(root):
    return class_names({"dataset": "custom", "train_path": str(root)})


def below(root, **options):
    return [path.removeprefix(f"{root}/") for path in folder_images(root, **options).images]


def test_linked_files_and_folders_are_followed(tmp_path):
    fill(tmp_path / "elsewhere", "1.png", "deep/2.png")
    root = fill(tmp_path / "train", "cat/0.png")
    (root / "cat/link.png").symlink_to("../../elsewhere/1.png")
    (root / "cat/more").symlink_to("../../elsewhere/deep")
    (root / "dog").symlink_to("../elsewhere")
    expected = ["cat/0.png", "cat/link.png", "cat/more/2.png", "dog/1.png", "dog/deep/2.png"]
    assert below(root) == expected
    images = folder_images(root)
    assert images.labels.tolist() == [0, 0, 0, 1, 1]
    assert all(images.load(row).size == (16, 16) for row in range(5))


def test_a_folder_is_entered_once_whatever_links_lead_to_it(tmp_path):
    root = fill(tmp_path / "train", "cat/0.png", "cat/in/1.png", "dog/2.png")
    for link, target in {
        "cat/again": "in",
        "cat/in/up": "..",
        "cat/root": "../..",  # whose dogs are no cats
        "cat/here": ".",
        "self": ".",
        "above": "..",
        "round": "round",
        "dog/there": "back",
        "dog/back": "there",
    }.items():
        (root / link).symlink_to(target)
    assert below(root) == ["cat/0.png", "cat/again/1.png", "dog/2.png"]
    assert folder_images(root).classes == labelled_folders(root) == ["cat", "dog"]
    assert len(below(root, labelled=False)) == 3


def test_hidden_and_foreign_entries_are_left_out(tmp_path):
    root = fill(
        tmp_path,
        "cat/0.png",
        "cat/._0.png",
        "cat/.cache/1.png",
        "cat/__MACOSX/._0.png",
        "__MACOSX/cat/._0.png",
        ".git/cat/2.png",
        "._loose.png",
        "cat/folder.jpg/3.png",
    )
    (root / "cat/read.me").write_text("")
    (root / "cat/photo.PSD").write_bytes(b"")
    (root / "cat/other.psd").write_bytes(b"")
    (root / "cat/nameless").write_bytes(b"")
    images = folder_images(root)
    assert below(root) == ["cat/0.png", "cat/folder.jpg/3.png"] and images.classes == ["cat"]
    (line, classes) = images.notes
    assert line == f"{root}: left out: 2 .psd, 1 nameless, 1 .me"
    assert classes.endswith("class folders without a readable image, left out: __MACOSX (empty)")
    assert folder_images(root, labelled=False).notes == [line]


def test_a_folder_of_other_files_says_what_it_holds(tmp_path):
    (tmp_path / "cat").mkdir()
    for number in range(3):
        (tmp_path / f"cat/{number}.psd").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="holds 3 .psd files, which are not read"):
        folder_images(tmp_path)
    with pytest.raises(FileNotFoundError, match="no image .*holds 3 .psd files"):
        folder_images(tmp_path, labelled=False)


@pytest.mark.parametrize("ending", [*EXTENSIONS, ".JPG", ".Png"])
def test_endings_in_any_case(ending, tmp_path):
    assert below(fill(tmp_path, f"cat/0{ending}")) == [f"cat/0{ending}"]


def test_classes_without_images_are_none(tmp_path):
    train = fill(tmp_path / "train", "bird/0.png", "cat/0.png", "dog/0.png")
    (train / "ant").mkdir()
    (train / "cow").mkdir()
    (train / "cow/notes.txt").write_text("")
    images = folder_images(train)
    assert images.classes == labelled_folders(train) == ["bird", "cat", "dog"]
    assert images.notes == [
        f"{train}: left out: 1 .txt",
        f"{train}: class folders without a readable image, left out: ant (empty), cow (1 .txt)",
    ]
    val = fill(tmp_path / "val", "dog/0.png")
    (val / "unseen").mkdir()
    (val / "cat").mkdir()
    found = folder_images(val, classes=images.classes)
    assert found.labels.tolist() == [2] and found.notes == [
        f"{val}: class folders without a readable image, left out: cat (empty), unseen (empty)"
    ]
    fill(val, "eel/0.png", "fox/0.png")
    with pytest.raises(ValueError, match="val has the class folders eel, fox, which the training"):
        folder_images(val, classes=images.classes)


def test_photographs_that_cannot_be_read_here_say_what_reads_them(tmp_path, monkeypatch):
    monkeypatch.setattr("simco_methods.data.folders.EXTENSIONS", (".png",))
    root = fill(tmp_path, "cat/0.png", "cat/1.HEIC", "cat/2.avif", "loose.heif", "cat/3.txt")
    hint = (
        "to read .avif: pip install -U pillow; to read .heic, .heif: pip install pillow-heif; or "
        "convert them to JPEG"
    )
    said = f"{root}: left out: 1 .avif, 1 .heic, 1 .heif, 1 .txt ({hint})"
    assert folder_images(root).notes == [said]
    assert folder_images(root, labelled=False).notes == [said]
    (root / "cat/0.png").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        folder_images(root)
    assert str(caught.value) == (
        f"no class folder with images in {root} (it holds 1 .avif, 1 .heic, 1 .heif, 1 .txt files, "
        f"which are not read; {hint})"
    )
    for number in range(8):
        (root / f"{number}").mkdir()
    fill(root, "dog/0.png")
    assert (
        folder_images(root)
        .notes[1]
        .endswith("left out: 0 (empty), 1 (empty), 2 (empty), 3 (empty), 4 (empty), and 4 more")
    )


def test_odd_names_of_classes_can_be_shown(tmp_path):
    odd = os.fsdecode(b"c\xe4t\n")
    train = fill(tmp_path / "train", f"{odd}/0.png", "größe/0.png")
    assert folder_images(train).classes == [odd, "größe"]
    for call in (
        lambda: folder_images(train, classes=["cat"]),
        lambda: folder_images(train).first_per_class(2),
        lambda: folder_images(fill(train, "loose.png")),
        lambda: folder_images(tmp_path / odd),
    ):
        with pytest.raises((ValueError, OSError)) as caught:
            call()
        assert r"c\udce4t\n" in str(caught.value) and str(caught.value).encode()


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch):
    """Not left out: its images would be missing from the run."""
    root = fill(tmp_path, "cat/0.png", "cat/locked/1.png")
    list_folder = os.scandir

    def refuse(path):
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return list_folder(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="Permission denied: .*locked"):
        folder_images(root)


def test_a_relative_folder_through_its_parent(tmp_path, monkeypatch):
    fill(tmp_path / "train", "cat/0.png")
    (tmp_path / "work").mkdir()
    (tmp_path / "train/cat/to").symlink_to("../../work")
    fill(tmp_path / "work", "1.png")
    monkeypatch.chdir(tmp_path / "work")
    assert len(folder_images(Path("../train")).images) == 2
    assert len(list(image_files(Path()))) == 1


def test_a_digest_is_of_the_set_and_not_of_its_place(tmp_path):
    root = fill(tmp_path / "one", "cat/0.png", "dog/1.png", os.fsdecode(b"dog/\xff\n.png"))
    images = folder_images(root)
    digest = images.digest()
    assert len(digest) == 16 and int(digest, 16) >= 0
    moved = tmp_path / "some" / "where"
    moved.parent.mkdir()
    root.rename(moved)
    assert folder_images(moved).digest() == digest
    assert folder_images(moved, labelled=False).digest() != digest
    images = folder_images(moved)
    images.labels = images.labels[::-1].copy()
    assert images.digest() != digest
    assert folder_images(moved, classes=["cat", "dog", "eel"]).digest() != digest
    (moved / "cat/0.png").rename(moved / "cat/2.png")
    assert folder_images(moved).digest() != digest
    (moved / "cat/2.png").rename(moved / "cat/0.png")
    assert folder_images(moved).digest() == digest
    fill(moved, "dog/3.png")
    assert folder_images(moved).digest() != digest


def test_a_digest_of_arrays_is_of_every_pixel():
    from simco_methods.data import ImageSet

    pixels = np.zeros((5000, 2, 3, 3), np.uint8)
    images = ImageSet(pixels, np.arange(5000) % 3, list("abc"))
    digest = images.digest()
    assert ImageSet(np.asfortranarray(pixels), images.labels, images.classes).digest() == digest
    assert ImageSet(pixels.reshape(5000, 3, 2, 3), images.labels, images.classes).digest() != digest
    pixels[4999, 1, 2, 2] = 1
    assert images.digest() != digest


def test_a_relative_folder_that_is_not_there_says_from_where(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError) as caught:
        folder_images("photos/train")
    assert str(caught.value) == f"there is no folder photos/train in {tmp_path}"
    with pytest.raises(FileNotFoundError) as caught:
        folder_images(tmp_path / "photos")
    assert str(caught.value) == f"there is no folder {tmp_path}/photos"
