"""Order and draws: each image at most once an epoch; functions of what is said, and no more."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from simco_methods.data.draws import CONTRAST, HUE, SATURATION, ViewSettings, draw_views
from simco_methods.data.loaders import EpochSampler
from simco_methods.data.parameters import BLUR_PASSES, BLUR_REACH, Parameters
from tests.properties.drawn import seeds

# ---- order ---------------------------------------------------------------------------------------


@given(
    length=st.integers(1, 300),
    batch_size=st.integers(1, 20),
    world=st.integers(1, 5),
    seed=seeds,
    epoch=st.integers(0, 1000),
    start=st.tuples(st.integers(0, 1000), st.integers(0, 9)),
)
def test_processes_share_every_global_batch(length, batch_size, world, seed, epoch, start):
    def order(size=batch_size, rank=0, world_size=1, epoch=epoch, **options):
        sampler = EpochSampler(length, size, seed, rank, world_size, **options)
        sampler.set_epoch(epoch)
        pairs = list(sampler)
        assert {at for at, _ in pairs} <= {sampler.epoch}
        return np.array([index for _, index in pairs], dtype=np.int64)

    ranks = [order(batch_size, rank, world) for rank in range(world)]
    seen, size = np.concatenate(ranks), batch_size * world
    assert len(set(seen.tolist())) == len(seen) == length // size * size
    assert ((seen >= 0) & (seen < length)).all()
    batches = np.stack([rank.reshape(-1, batch_size) for rank in ranks], axis=1)
    assert (batches.ravel() == order(size)).all()
    # A resumed run takes up its epoch where it stopped, and has the later ones whole.
    done = start[1] * batch_size if epoch <= start[0] else 0
    resumed = order(start=start)
    assert (resumed == order(epoch=max(epoch, start[0]))[done:]).all()


# ---- draws ---------------------------------------------------------------------------------------

probabilities = st.sampled_from([0.0, 0.3, 1.0])
amounts = st.sampled_from([0.0, 0.4, 1.0, 1.5])
pixels = st.integers(1, 4) | st.integers(1, 40) | st.integers(1, 4000)

shares = st.floats(1e-3, 1) | st.sampled_from([0.01, 0.08, 1.0])


@st.composite
def view_settings(draw):
    low, high = sorted(draw(st.tuples(shares, shares)))
    return ViewSettings(
        crop_size=16,
        scale=draw(st.sampled_from([None, (low, high), (low, low)])),
        interpolation="bicubic",
        amounts=(*(draw(amounts) for _ in range(3)), draw(st.sampled_from([0.0, 0.1, 0.5]))),
        **{
            name: draw(probabilities)
            for name in ("jitter", "gray", "blur", "solarize", "equalize", "flip")
        },
    )


@st.composite
def items(draw):
    """(epoch, image, view, height, width) of some views; an image has one size."""
    sizes = draw(st.lists(st.tuples(pixels, pixels), min_size=1, max_size=4))
    where = st.tuples(st.integers(0, 3), st.integers(0, len(sizes) - 1), st.integers(0, 1))
    chosen = draw(st.lists(where, min_size=1, max_size=12))
    far = draw(st.sampled_from([0, 2**31, 2**40]))
    return [(epoch, far + image, view, *sizes[image]) for epoch, image, view in chosen]


def drawn(settings, seed, rows):
    epochs, images, views, *size = np.array(rows, dtype=np.int64).T
    return draw_views(settings, np.stack(size, axis=1), seed, epochs, images, views)


def values(draws, row):
    return [np.asarray(value).tolist() for value in vars(draws.rows(row)).values()]


@given(view_settings(), items(), seeds)
def test_a_draw_is_of_seed_epoch_image_and_view_alone(settings, rows, seed):
    together, moves = drawn(settings, seed, rows), all(settings.amounts)
    for number, row in enumerate(rows):
        assert values(together, number) == values(drawn(settings, seed, [row]), 0)
        # Of four numbers of 53 bits two draws have all in common only if they are of the same.
        same = (together.factors == together.factors[number]).all(axis=1)
        assert not moves or same.tolist() == [row[:3] == other[:3] for other in rows]
        reseeded = drawn(settings, seed + 1, [row]).factors[0]
        assert not moves or (reseeded != together.factors[number]).all()


@given(view_settings(), items(), seeds)
def test_crops_lie_in_their_image_and_values_in_their_range(settings, rows, seed):
    draws = drawn(settings, seed, rows)
    top, left, height, width = draws.box.T
    tall, wide = np.array(rows)[:, 3:].T
    assert draws.box.dtype == np.int64 and (height >= 1).all() and (width >= 1).all()
    assert (top >= 0).all() and (left >= 0).all()
    assert (top + height <= tall).all() and (left + width <= wide).all()
    if settings.scale is None:
        assert (draws.box == np.stack([0 * tall, 0 * tall, tall, wide], axis=1)).all()
    else:
        # Of a share of the area and within the ratios, to half a pixel a side; or, where no attempt
        # fits, the most of the image that is within them.
        low, high = settings.scale
        slack = (height + width + 1) / 2
        share = (height * width >= low * tall * wide - slack) & (
            height * width <= high * tall * wide + slack
        )
        ratio = (width + 0.5) / (height - 0.5) >= 3 / 4
        ratio &= (width - 0.5) / (height + 0.5) <= 4 / 3
        most = (height == tall) | (width == wide)
        assert ratio.all() and (share | most).all()
    assert (np.sort(draws.order, axis=1) == np.arange(4)).all()
    for kind in range(HUE):
        amount, factor = settings.amounts[kind], draws.factors[:, kind]
        assert (factor >= max(0, 1 - amount)).all() and (factor <= 1 + amount).all()
    assert (np.abs(draws.factors[:, HUE]) <= settings.amounts[HUE]).all()
    assert ((draws.radius == 0) | ((draws.radius >= 0.1) & (draws.radius <= 2))).all()
    for probability, flags in (
        (settings.jitter, draws.jittered),
        (settings.gray, draws.gray),
        (settings.blur, draws.radius > 0),
        (settings.solarize, draws.solarized),
        (settings.equalize, draws.equalized),
        (settings.flip, draws.flipped),
    ):
        assert probability != 0 or not flags.any()
        assert probability != 1 or flags.all()


@given(view_settings(), items(), seeds)
def test_the_tensors_say_what_was_drawn(settings, rows, seed):
    """The blends, in their order and on their side of the hue, and a box as wide as the blur."""
    draws = drawn(settings, seed, rows)
    parameters = Parameters.from_draws(settings, draws, torch.device("cpu"))
    count = 2 if settings.amounts[HUE] and settings.jitter else 1  # of halves
    blends = np.stack([parameters.factor, parameters.to_gray, parameters.to_mean], axis=2)
    for row in range(len(draws)):
        halves, half = [[] for _ in range(count)], 0
        for kind in draws.order[row] if draws.jittered[row] else []:
            rest = 1 - draws.factors[row, kind]
            if kind == HUE:
                half = count - 1
            elif settings.amounts[kind]:
                changed = (1 - rest, rest * (kind == SATURATION), rest * (kind == CONTRAST))
                halves[half].append(changed)
        for changes in halves:
            changes += [(1.0, 0.0, 0.0)] * (blends.shape[1] // count - len(changes))
        expected = np.reshape(halves, (-1, 3))
        assert np.allclose(blends[row], expected)
        offsets = np.arange(-BLUR_REACH, BLUR_REACH + 1)
        box = np.clip(float(parameters.radius[row]) + 1 - np.abs(offsets), 0, 1)
        variance = (box * offsets**2).sum() / box.sum()
        assert np.isclose(BLUR_PASSES * variance, draws.radius[row] ** 2, rtol=1e-5, atol=1e-9)
