"""The encoder as a transformer of scikit-learn."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted

from simco_methods.encoder import Encoder
from tests.encoder.conftest import encoder_of, pictures, same_weights


@pytest.fixture
def encoder():
    return encoder_of()


@pytest.fixture(scope="module")
def dark_and_bright():
    """Images (30, 16, 16, 3), of which every second is dark, and which they are."""
    images = np.random.default_rng(0).integers(0, 255, (30, 16, 16, 3), dtype=np.uint8)
    images[::2] //= 4
    return images, np.arange(30) % 2


class RowEncoder(Encoder):
    """An encoder of rows of numbers, which scikit-learn's checks consist of."""

    def preprocess(self, image):
        row = np.asarray(image, dtype=np.float32)
        if row.ndim != 1:
            raise ValueError(f"an image must be a row of numbers, got {row.shape}")
        side = self.card.preprocessing.size
        return torch.from_numpy(np.resize(row, (3, side, side)))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


# The checks that an encoder cannot pass. It passes all others.
NOT_MET = {
    "check_no_attributes_set_in_init": "torch.nn.Module sets `training`",
    "check_parameters_default_constructible": "there is no encoder without a backbone",
    "check_do_not_raise_errors_in_init_or_set_params": "backbone and card are no parameters",
    "check_estimator_sparse_tag": "fit looks at nothing; transform refuses sparse matrices",
}


def test_scikit_learn_s_own_checks(encoder):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    if not hasattr(checks, "estimator_checks_generator"):
        pytest.skip(f"scikit-learn {sklearn.__version__} has no expected_failed_checks (1.6 has)")
    rows = RowEncoder(encoder.backbone, encoder.card).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is skipped, by scikit-learn
        found = checks.check_estimator(rows, expected_failed_checks=NOT_MET, on_fail=None)
    status = {check["check_name"]: check["status"] for check in found}
    assert len(status) > 25 and status["check_transformer_general"] == "passed"
    assert {name for name, what in status.items() if what == "failed"} == set()
    assert {name for name, what in status.items() if what == "xfail"} == set(NOT_MET)


def test_parameters(encoder):
    assert encoder.get_params() == {"batch_size": 256, "normalize": False}
    assert encoder.set_params(normalize=True) is encoder and encoder.normalize
    with pytest.raises(ValueError, match="card"):
        encoder.set_params(card=None)


def test_normalize_scales_rows_to_unit_length(encoder):
    images = pictures(3)
    features = encoder.transform(images)
    unit = encoder.set_params(normalize=True).transform(images)
    expected = features / np.linalg.norm(features, axis=1, keepdims=True)
    np.testing.assert_allclose(unit, expected, rtol=1e-5)
    assert not np.allclose(unit, features)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("batch_size", 0, "batch_size=0: must be an integer from 1 on"),
        ("batch_size", 2.5, "batch_size=2.5: must be an integer"),
        ("batch_size", True, "batch_size=True: must be an integer"),
        ("normalize", "false", "normalize='false': must be True or False"),
    ],
)
def test_parameters_out_of_their_range(encoder, name, value, message):
    encoder.set_params(**{name: value})  # scikit-learn has it checked when it is used
    with pytest.raises(ValueError, match=message):
        encoder.transform(pictures(1))


def test_a_clone_has_parameters_of_its_own_and_shares_the_weights(encoder):
    encoder.set_params(batch_size=8).set_output(transform="pandas")
    cloned = clone(encoder)
    assert cloned is not encoder and cloned.get_params() == encoder.get_params()
    assert cloned.backbone is encoder.backbone and cloned.card is encoder.card
    cloned.set_params(normalize=True, batch_size=2).set_output(transform="default")
    assert encoder.get_params() == {"batch_size": 8, "normalize": False}
    assert isinstance(encoder.transform(pictures(1)), pd.DataFrame)
    assert isinstance(cloned.transform(pictures(1)), np.ndarray)
    # Trained afterwards, both give the new features.
    before = clone(encoder).set_output(transform="default").transform(pictures(1))
    with torch.no_grad():
        encoder.backbone.conv1.weight.mul_(-1)
    assert not np.array_equal(cloned.set_params(normalize=False).transform(pictures(1)), before)


def test_a_clone_leaves_the_mode_alone(encoder):
    cloned = clone(encoder.eval())
    cloned.transform(pictures(1))
    assert not any(module.training for module in (*encoder.modules(), *cloned.modules()))


def test_fitting_changes_nothing(encoder):
    before, images = copy.deepcopy(encoder), pictures(3)
    check_is_fitted(encoder)
    assert encoder.fit(images, [0, 1, 0]) is encoder and encoder.fit() is encoder
    features = encoder.fit_transform(iter(images), [0, 1, 0])
    assert np.array_equal(features, before.transform(images))
    assert same_weights(before, encoder)


def test_names_of_the_features(encoder):
    names = encoder.get_feature_names_out()
    assert list(names) == [f"encoder{number}" for number in range(16)]
    assert list(encoder.get_feature_names_out(["path"])) == list(names)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_tables(encoder, kind):
    library = pytest.importorskip(kind)
    images = pictures(3)
    expected = encoder.transform(images)
    try:
        encoder.set_output(transform=kind)
        table = encoder.transform(images)
    except ValueError:
        pytest.skip(f"scikit-learn {sklearn.__version__} gives no tables of {kind}")
    assert isinstance(table, library.DataFrame)
    assert list(table.columns) == list(encoder.get_feature_names_out())
    assert np.array_equal(table.to_numpy(), expected)
    assert np.array_equal(encoder.set_output(transform="default").transform(images), expected)


def test_a_step_of_a_pipeline(encoder, dark_and_bright):
    images, labels = dark_and_bright
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
    assert len(repr(pipeline)) < 300


def test_a_pipeline_that_remembers(encoder, dark_and_bright, tmp_path, monkeypatch):
    read, preprocess = [], Encoder.preprocess

    def counted(self, image):
        read.append(1)
        return preprocess(self, image)

    monkeypatch.setattr(Encoder, "preprocess", counted)
    pipeline = make_pipeline(encoder, LogisticRegression(), memory=str(tmp_path))
    search = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1, 10]}, cv=2, refit=False)
    search.fit(*dark_and_bright)
    # The training images of both folds once, the held-out ones for each of three values.
    assert len(read) == 30 + 3 * 30


SEARCHED = {"encoder__normalize": [False, True], "classifier__C": [0.01, 100.0]}


@pytest.mark.parametrize(
    "jobs",
    [1, pytest.param(2, marks=pytest.mark.slow)],  # which starts processes
)
def test_a_grid_search(encoder, dark_and_bright, jobs):
    images, labels = dark_and_bright
    pipeline = Pipeline([("encoder", encoder), ("classifier", LogisticRegression(max_iter=1000))])
    search = GridSearchCV(pipeline, SEARCHED, cv=3, n_jobs=jobs).fit(images, labels)
    scores = search.cv_results_["mean_test_score"]
    for params, score in zip(search.cv_results_["params"], scores, strict=True):
        features = copy.deepcopy(encoder).set_params(normalize=params["encoder__normalize"])
        classifier = LogisticRegression(max_iter=1000, C=params["classifier__C"])
        expected = cross_val_score(classifier, features.transform(images), labels, cv=3).mean()
        assert score == pytest.approx(expected)
    assert len(set(scores)) > 1
    assert search.best_estimator_["encoder"].normalize == search.best_params_["encoder__normalize"]
    assert encoder.get_params() == {"batch_size": 256, "normalize": False}
    if jobs == 1:
        assert search.best_estimator_["encoder"].backbone is encoder.backbone


def test_a_search_over_encoders(dark_and_bright):
    images, labels = dark_and_bright
    encoders = [encoder_of(seed=seed) for seed in range(2)]
    pipeline = Pipeline([("encoder", encoders[0]), ("classifier", LogisticRegression())])
    search = GridSearchCV(pipeline, {"encoder": encoders}, cv=2).fit(images, labels)
    best = search.best_params_["encoder"]
    assert search.best_estimator_["encoder"].backbone is best.backbone
    assert any(best.backbone is encoder.backbone for encoder in encoders)


def test_columns_of_a_table(encoder, tmp_path):
    images = pictures(4)
    paths = [str(tmp_path / f"{number}.png") for number in range(4)]
    for image, path in zip(images, paths, strict=True):
        image.save(path)
    table = pd.DataFrame({"path": paths, "width": [1.0, 2.0, 3.0, 4.0]})
    for column in ("path", ["path"]):
        both = ColumnTransformer(
            [("image", encoder, column), ("size", StandardScaler(), ["width"])]
        )
        found = both.set_output(transform="pandas").fit_transform(table)
        assert list(found.columns) == [
            *(f"image__encoder{number}" for number in range(16)),
            "size__width",
        ]
        assert np.array_equal(found.iloc[:, :16].to_numpy(), encoder.transform(images))


def test_features_of_two_encoders_side_by_side():
    one, other = encoder_of(seed=0), encoder_of(seed=1)
    both = make_union(one, other).fit_transform(pictures(2))
    assert np.array_equal(both[:, :16], one.transform(pictures(2)))
    assert np.array_equal(both[:, 16:], other.transform(pictures(2)))


def test_it_is_a_module_still(encoder):
    assert isinstance(encoder, torch.nn.Module)
    names = set(encoder.state_dict())
    assert names == {f"backbone.{name}" for name in encoder.backbone.state_dict()}
    other = encoder_of(seed=1)
    other.load_state_dict(encoder.state_dict())
    assert same_weights(other, encoder)
    assert not encoder.eval().requires_grad_(False).training
