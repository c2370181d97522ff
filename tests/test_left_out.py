"""Files and class folders that are left out: every command names them, in a line each."""

import pytest
from PIL import Image
from sklearn.datasets import load_digits

from simco_methods.analysis.settings import Settings as AnalyzeSettings
from simco_methods.analyze import analyze
from simco_methods.embedding.run import embed
from simco_methods.embedding.settings import EmbedSettings
from simco_methods.evaluation.knn import KNNSettings, knn
from simco_methods.evaluation.linear_settings import LinearSettings
from simco_methods.evaluation.transfer import TransferSettings, transfer
from simco_methods.linear import linear
from simco_methods.looking.run import visualize
from simco_methods.looking.settings import VisualizeSettings
from simco_methods.runner.train import pretrain
from simco_methods.settings import parse_settings
from tests.runner.test_pretrain import quick


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """``train/`` and ``val/``: digits in three classes, other files, classes without an image."""
    root = tmp_path_factory.mktemp("data") / "photos"
    digits = load_digits()
    for part, first in (("train", 0), ("val", 30)):
        for row in range(first, first + 30):
            folder = root / part / f"digit {digits.target[row] % 3}"
            folder.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray((digits.images[row] * 15).astype("uint8")).resize((16, 16))
            image.save(folder / f"{row}.{'jfif' if row % 2 else 'png'}")
        (root / part / "blank").mkdir()
        (root / part / "layers").mkdir()
        for number in range(6):
            (root / part / "layers" / f"{number}.psd").write_bytes(b"")
        (root / part / "digit 0" / "about.txt").write_text("")
    return root


def lines(folder):
    """What is to be said of a folder."""
    return [
        f"{folder}: left out: 6 .psd, 1 .txt",
        f"{folder}: class folders without a readable image, left out: blank (empty), layers "
        "(6 .psd)",
    ]


def config(photos, folder):
    data = {"data__train_path": str(photos / "train"), "data__val_path": str(photos / "val")}
    return quick("custom/simco", folder, augmentations__0__crop_size=16, **data)


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory):
    """A run on them, and what it printed."""
    with pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *things, **_: said.extend(map(str, things)))
        folder = pretrain(config(photos, tmp_path_factory.mktemp("run") / "run"))
    return str(folder), "\n".join(said)


def test_by_a_training(run, photos):
    _, said = run
    for line in lines(photos / "train") + lines(photos / "val"):
        assert said.count(f"note: {line}\n") == 1
    assert "30 training images, 30 to validate on" in said


def evaluated(command, photos, run, out):
    """Runs a command on both folders, or on the one that it takes; returns their names."""
    common = ["device=cpu", "num_workers=0", f"out={out}"]
    if command == "simco-knn":
        knn(run, parse_settings(command, KNNSettings, common))
    if command == "simco-linear":
        options = ["epochs=1", "lr=[0.1]", *common]
        linear(run, parse_settings(command, LinearSettings, options))
    if command == "simco-transfer":
        options = ["epochs=1", "lr=[0.1]", "datasets=photos", f"data={photos.parent}", *common]
        transfer(run, parse_settings(command, TransferSettings, options))
    if command == "simco-visualize":
        options = ["images=20", "method=pca", "examples=2", "neighbours=3", "views=2", *common]
        visualize(run, parse_settings(command, VisualizeSettings, options))
        return ["val"]
    if command == "simco-analyze":
        options = ["analysis=geometry", "anchors=8", "batches=2", "num_workers=0", f"out={out}"]
        checkpoint = f"{run}/checkpoints/last.ckpt"
        analyze(checkpoint, parse_settings(command, AnalyzeSettings, options))
        return ["train"]
    return ["train", "val"]


@pytest.mark.parametrize(
    "command", ["simco-knn", "simco-linear", "simco-transfer", "simco-visualize", "simco-analyze"]
)
def test_by_a_command(command, run, photos, tmp_path, capsys):
    named = evaluated(command, photos, run[0], tmp_path / "out")
    said = capsys.readouterr().out
    for part in named:
        for line in lines(photos / part):
            assert said.count(f"note: {line}\n") == 1, said


def test_by_embedding_a_folder(run, photos, tmp_path, capsys):
    """Of which the class folders are no classes."""
    settings = ["device=cpu", "num_workers=0", f"out={tmp_path / 'out'}"]
    embed(run[0], photos, parse_settings("simco-embed", EmbedSettings, settings))
    said = capsys.readouterr().out
    assert f"note: {photos}: left out: 12 .psd, 2 .txt\n" in said and "60 x 16 features" in said
