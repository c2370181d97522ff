"""The encoder as a module, and the images that it takes."""

import copy
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from simco_methods import image_files
from simco_methods.data.decode import UnreadableImage
from simco_methods.encoder import Encoder
from tests.encoder.conftest import encoder_of, pictures, same_weights


@pytest.fixture(scope="module")
def encoder():
    return encoder_of()


def test_pictures_arrays_and_paths_of_any_size_give_the_same(encoder, tmp_path):
    images = pictures(2, 20) + pictures(2, 33)
    paths = [tmp_path / f"{number}.png" for number in range(4)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    features = encoder.transform(images)
    assert features.shape == (4, 16) and features.dtype == np.float32
    for same in (map(np.asarray, images), paths, map(str, paths)):
        assert np.array_equal(encoder.transform(list(same)), features)
    with torch.no_grad():
        one = encoder(encoder.preprocess(images[3])[None])
    np.testing.assert_allclose(one.numpy()[0], features[3], rtol=1e-5, atol=1e-6)


def test_it_is_shown_on_a_line(encoder):
    assert repr(encoder) == "Encoder(micro_resnet, 16 features, 16 px)" == str(encoder)
    known = encoder_of()
    known.card.method, known.card.dataset, known.normalize = "simco", "cifar10", True
    assert repr(known) == (
        "Encoder(micro_resnet, 16 features, 16 px, simco on cifar10, normalize=True)"
    )
    assert "conv1" in repr(known.backbone)


def test_the_digest_is_of_all_that_makes_features(encoder):
    same, other = encoder_of(), encoder_of(seed=1)
    assert same.digest() == encoder.digest() != other.digest()
    # The same weights, other features.
    same.card.kwargs["stem_padding"] = 1
    assert same.digest() != encoder.digest()


def test_batches_change_nothing_but_memory(encoder):
    images = np.random.default_rng(0).integers(0, 255, (7, 16, 16), dtype=np.uint8)
    expected = encoder.transform(np.repeat(images[..., None], 3, axis=3))
    small = Encoder(encoder.backbone, encoder.card, batch_size=2)
    np.testing.assert_allclose(small.transform(images), expected, rtol=1e-5, atol=1e-6)
    assert encoder.transform([]).shape == (0, 16)


def test_one_path_or_picture_is_one_row(encoder, tmp_path):
    image = pictures(1)[0]
    image.save(tmp_path / "a.png")
    expected = encoder.transform([image])
    assert expected.shape == (1, 16)
    for same in (image, tmp_path / "a.png", str(tmp_path / "a.png")):
        assert np.array_equal(encoder.transform(same), expected)


def test_a_folder_is_read_in_the_order_of_its_listing(encoder, tmp_path):
    images, names = pictures(4), ["b/1.png", "a/2.png", "a/10.jpg", "z.bmp"]
    for image, name in zip(images, names, strict=True):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        image.save(path)
    paths = list(image_files(str(tmp_path)))
    assert [path[len(str(tmp_path)) + 1 :] for path in paths] == [names[i] for i in (3, 2, 1, 0)]
    expected = encoder.transform(paths)
    assert expected.shape == (4, 16)
    assert np.array_equal(encoder.transform(tmp_path), expected)
    assert np.array_equal(encoder.transform(f"{tmp_path}/"), expected)


def test_files_of_a_folder_that_are_not_read_are_counted(encoder, tmp_path):
    pictures(1)[0].save(tmp_path / "a.png")
    (tmp_path / "b.raw").write_bytes(b"raw")
    with pytest.warns(UserWarning, match="left out: 1 .raw") as seen:
        assert encoder.transform(tmp_path).shape == (1, 16)
    assert seen[0].filename == __file__  # where it was called
    (tmp_path / "a.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"no image .* 1 \.raw files"):
        encoder.transform(tmp_path)


def test_kinds_may_be_mixed_and_come_from_anywhere(encoder, tmp_path):
    images = pictures(4)
    images[0].save(tmp_path / "a.png")
    path = str(tmp_path / "a.png")
    mixed = [path, images[1], np.asarray(images[2]), torch.from_numpy(np.array(images[3]))]
    expected = encoder.transform(images)
    for same in (mixed, tuple(mixed), iter(mixed), (image for image in mixed)):
        assert np.array_equal(encoder.transform(same), expected)
    table = pd.DataFrame({"path": [path, path]}, index=[7, 3])
    for column in (table, table["path"], table.to_numpy(), np.array([path, path])):
        assert np.array_equal(encoder.transform(column), encoder.transform([path, path]))


def test_images_are_read_a_batch_at_a_time(encoder):
    read, seen = [], []

    def stream():
        for image in pictures(5):
            read.append(image)
            yield image

    small = Encoder(encoder.backbone, encoder.card, batch_size=2)
    small.register_forward_pre_hook(
        lambda module, images: seen.append((len(read), images[0].shape))
    )
    assert small.transform(stream()).shape == (5, 16)
    assert seen == [(2, (2, 3, 16, 16)), (4, (2, 3, 16, 16)), (5, (1, 3, 16, 16))]


def test_grey_and_transparent_pictures(encoder):
    images = pictures(1)
    expected = encoder.transform([images[0].convert("L").convert("RGB")])
    assert np.array_equal(encoder.transform([images[0].convert("L")]), expected)
    assert encoder.transform([images[0].convert("RGBA")]).shape == (1, 16)


def test_the_mode_is_as_it_was_and_does_not_matter():
    encoder = encoder_of().train()
    before = copy.deepcopy(encoder)
    trained = encoder.transform(pictures(3))
    assert encoder.training and same_weights(before, encoder)
    assert np.array_equal(encoder.eval().transform(pictures(3)), trained)
    assert not encoder.training


def test_a_part_that_is_not_trained_stays_so():
    encoder = encoder_of().train()
    encoder.backbone.bn1.eval()
    modes = {name: module.training for name, module in encoder.named_modules()}
    encoder.transform(pictures(2))
    assert {name: module.training for name, module in encoder.named_modules()} == modes


@pytest.mark.parametrize(
    "images, message",
    [
        (np.zeros((2, 16, 16, 3)), "an array of uint8 from 0 to 255, or of uint16 .*, got float64"),
        (np.zeros((16, 16, 3), np.uint8), r"shape \(16, 16, 3\) is one image; put it into a list"),
        (np.zeros((2, 3, 16, 16), np.uint8), r"the shape \(H, W, 3\) or \(H, W\), got"),
        (np.zeros((2, 192), np.uint8), r"the shape \(H, W, 3\) or \(H, W\), got \(192,\)"),
        ([np.zeros((0, 3), np.uint8)], "the shape"),
        (None, "a path, a folder or a sequence of images, got None"),
        (3, "a path, a folder or a sequence of images, got 3"),
        (pd.DataFrame({"path": ["a"], "size": [1]}), "must be one column.* has path, size"),
    ],
)
def test_other_images_are_refused(encoder, images, message):
    with pytest.raises(ValueError, match=message):
        encoder.transform(images)


def test_a_file_that_is_no_image_is_named(encoder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    for images in ([tmp_path / "a.png"], tmp_path / "a.png", tmp_path):
        with pytest.raises(UnreadableImage, match="a.png: "):
            encoder.transform(images)
    shutil.rmtree(tmp_path)
    with pytest.raises(UnreadableImage, match="No such file"):
        encoder.transform(tmp_path)


def test_other_tensors_are_refused(encoder):
    with pytest.raises(ValueError, match=r"\(N, 3, S, S\), got \(3, 16, 16\)"):
        encoder(torch.zeros(3, 16, 16))


def test_copies_are_of_their_own(encoder):
    for copied in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert same_weights(copied, encoder) and copied.card == encoder.card
        with torch.no_grad():
            copied.backbone.conv1.weight.zero_()
        assert not same_weights(copied, encoder)


def test_training_goes_on():
    encoder = encoder_of().train()
    images, targets = torch.randn(8, 3, 16, 16), torch.arange(8) % 2
    model = torch.nn.Sequential(encoder, torch.nn.Linear(encoder.features, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(model(images), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert encoder.backbone.conv1.weight.grad.abs().sum() > 0 and losses[-1] < losses[0]


def test_moving_it(encoder):
    half = copy.deepcopy(encoder).to(torch.bfloat16)
    features = half.transform(pictures(2))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, encoder.transform(pictures(2)), rtol=0.1, atol=0.1)
    assert encoder.to("cpu").device == torch.device("cpu")
    assert copy.deepcopy(encoder).to("meta").device == torch.device("meta")
