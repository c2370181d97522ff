"""The encoder as a module, and as a step of scikit-learn's pipelines."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from simco_methods.data.decode import UnreadableImage
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


def test_the_digest_is_of_all_that_makes_features(encoder):
    same, other = encoder_of(), encoder_of(seed=1)
    assert same.digest() == encoder.digest() != other.digest()
    # The same weights, other features.
    same.card.kwargs["stem_padding"] = 1
    assert same.digest() != encoder.digest()


def test_batches_change_nothing_but_memory(encoder):
    images = np.random.default_rng(0).integers(0, 255, (7, 16, 16), dtype=np.uint8)
    expected = encoder.transform(np.repeat(images[..., None], 3, axis=3))
    np.testing.assert_allclose(
        encoder.transform(images, batch_size=2), expected, rtol=1e-5, atol=1e-6
    )
    assert encoder.transform([]).shape == (0, 16)


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


@pytest.mark.parametrize(
    "images, message",
    [
        (np.zeros((2, 16, 16, 3)), "an array of uint8 from 0 to 255, got float64"),
        (np.zeros((16, 16, 3), np.uint8), "a sequence of images, got one"),
        ("a.png", "a sequence of images, got one"),
        (np.zeros((2, 3, 16, 16), np.uint8), r"the shape \(H, W, 3\) or \(H, W\), got"),
        (np.zeros((2, 192), np.uint8), r"the shape \(H, W, 3\) or \(H, W\), got \(192,\)"),
        ([np.zeros((0, 3), np.uint8)], "the shape"),
    ],
)
def test_other_images_are_refused(encoder, images, message):
    with pytest.raises(ValueError, match=message):
        encoder.transform(images)


def test_a_file_that_is_no_image_is_named(encoder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"nothing")
    with pytest.raises(UnreadableImage, match="a.png"):
        encoder.transform([tmp_path / "a.png"])


def test_other_tensors_are_refused(encoder):
    with pytest.raises(ValueError, match=r"\(N, 3, S, S\), got \(3, 16, 16\)"):
        encoder(torch.zeros(3, 16, 16))


def test_a_step_of_a_pipeline():
    encoder = encoder_of()
    images = np.random.default_rng(0).integers(0, 255, (30, 16, 16, 3), dtype=np.uint8)
    images[::2] //= 4  # the dark ones
    labels = np.arange(30) % 2
    before = copy.deepcopy(encoder)
    pipeline = make_pipeline(encoder, LogisticRegression(max_iter=1000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pipeline.fit(images, labels).score(images, labels) > 0.9
        assert np.array_equal(pipeline[:-1].transform(images), encoder.transform(images))
        assert cross_val_score(pipeline, images, labels, cv=2).mean() > 0.8
        copied = pickle.loads(pickle.dumps(pipeline))
        assert np.array_equal(copied.predict(images), pipeline.predict(images))
    assert same_weights(before, encoder)


def test_a_pipeline_that_remembers(tmp_path):
    images = np.random.default_rng(0).integers(0, 255, (6, 16, 16, 3), dtype=np.uint8)
    pipeline = make_pipeline(encoder_of(), LogisticRegression(), memory=str(tmp_path))
    assert pipeline.fit(images, np.arange(6) % 2).predict(images).shape == (6,)


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
