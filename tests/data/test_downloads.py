"""``data.download=true`` of several processes of one machine at once."""

import multiprocessing
import os
import pickle
import time
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from simco_methods.data import load_images

_ROWS = {"data": np.full((3, 3072), 7, np.uint8), "labels": [0, 1, 9]}


def cifar(folder, **settings):
    settings = {"dataset": "cifar10", "train_path": str(folder), "download": True, **settings}
    return load_images(OmegaConf.create(settings), "train")


def _slow_download(url, root, filename, md5):
    # A file at a time, as an archive is unpacked.
    folder = Path(root) / "cifar-10-batches-py"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "downloads", "a") as log:
        log.write(f"{os.getpid()}\n")
    names = [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch", "batches.meta"]
    for name in names:
        time.sleep(0.1)
        with open(folder / name, "wb") as file:
            pickle.dump({"label_names": list("abcdefghij"), **_ROWS}, file)


@pytest.fixture
def internet(monkeypatch):
    exists = lambda path, md5=None: os.path.isfile(path)  # noqa: E731
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", exists)
    monkeypatch.setattr("torchvision.datasets.cifar.download_and_extract_archive", _slow_download)


def _read(folder, start, results):
    start.wait()
    images = cifar(folder)
    results.put((images.images.shape, int(images.images.min())))


def test_one_process_downloads_and_the_others_wait(tmp_path, internet):
    context = multiprocessing.get_context("fork")
    results, start = context.Queue(), context.Event()
    arguments = tmp_path / "new", start, results
    processes = [context.Process(target=_read, args=arguments) for _ in range(2)]
    for process in processes:
        process.start()
    start.set()
    assert [results.get(timeout=60) for _ in processes] == [((15, 32, 32, 3), 7)] * 2
    for process in processes:
        process.join(60)
    log = tmp_path / "new" / "cifar-10-batches-py" / "downloads"
    assert len(log.read_text().split()) == 1


def test_what_is_there_needs_no_lock(tmp_path, internet, monkeypatch):
    """As in a folder that many read and nobody may write."""
    cifar(tmp_path)
    monkeypatch.setattr("simco_methods.data.datasets.lock", None)
    assert len(cifar(tmp_path)) == 15


def test_a_download_that_fails_is_named_and_gives_the_lock_back(tmp_path, internet, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("File not found or corrupted.")

    with monkeypatch.context() as patch:
        patch.setattr("torchvision.datasets.cifar.download_and_extract_archive", fail)
        why = f"cifar10 could not be downloaded to {tmp_path}: File not found or corrupted"
        with pytest.raises(OSError, match=why):
            cifar(tmp_path)
    assert len(cifar(tmp_path)) == 15
