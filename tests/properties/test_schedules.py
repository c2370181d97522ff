"""Learning rates and tau: functions of the step alone, within their ends, for any lengths."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from simco_methods.host.ema import MomentumUpdater
from simco_methods.host.schedule import WarmupCosineLR, warmup_cosine

rates = st.floats(0, 10) | st.sampled_from([0.0, 0.003, 0.03])
ROUNDING = 1e-12


@st.composite
def schedules(draw):
    """Also a warm-up that is longer than the training."""
    total = draw(st.integers(1, 60))
    warmup = draw(st.integers(0, 2 * total))
    return {
        "warmup_steps": warmup,
        "total_steps": total,
        "warmup_start_lr": draw(rates),
        "min_lr": draw(rates),
    }


@given(rates, schedules())
def test_rates_stay_between_their_ends(base, schedule):
    warmup, total, start, end = schedule.values()
    lrs = [warmup_cosine(base, step, **schedule) for step in range(total + 1)]
    assert lrs[0] == (start if warmup else lrs[0])
    peak = base if warmup else start
    low, high = min(start, peak), max(start, peak)
    for step, (lr, following) in enumerate(zip(lrs, lrs[1:], strict=False)):
        if step < warmup:
            assert low - ROUNDING <= lr <= high + ROUNDING
            if step + 1 < warmup:
                assert (following - lr) * (base - start) >= -ROUNDING
        else:
            assert min(peak, end) - ROUNDING <= lr <= max(peak, end) + ROUNDING
            assert (following - lr) * (end - peak) >= -ROUNDING
        assert lr >= 0
    if 1 < warmup <= total:
        assert abs(lrs[warmup - 1] - base) < ROUNDING
    if warmup < total:
        assert abs(lrs[-1] - end) < ROUNDING
        # What is beyond the end stays there.
        assert warmup_cosine(base, 3 * total, **schedule) == lrs[-1]


@given(st.lists(rates, min_size=1, max_size=3), schedules(), st.data())
def test_a_resumed_schedule_is_the_straight_one_at_every_step(base, schedule, data):
    static = data.draw(st.sets(st.integers(0, len(base) - 1)))

    def make():
        groups = [{"params": [torch.nn.Parameter(torch.zeros(1))], "lr": lr} for lr in base]
        optimizer = torch.optim.SGD(groups, lr=0.1)
        return optimizer, WarmupCosineLR(optimizer, **schedule, static_groups=static)

    optimizer, scheduler = make()
    stop = data.draw(st.integers(0, schedule["total_steps"]))
    for step in range(schedule["total_steps"] + 1):
        lrs = [group["lr"] for group in optimizer.param_groups]
        assert scheduler.get_last_lr() == lrs
        for number, lr in enumerate(lrs):
            expected = warmup_cosine(base[number], step, **schedule)
            assert lr == (base[number] if number in static else expected)
        if step == stop:
            saved = scheduler.state_dict()
            optimizer, scheduler = make()
            scheduler.load_state_dict(saved)
            assert [group["lr"] for group in optimizer.param_groups] == lrs
        optimizer.step()
        scheduler.step()


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 200))
def test_tau_goes_from_base_to_final_and_never_back(one, other, steps):
    base, final = sorted((one, other))
    updater = MomentumUpdater(base, final)
    assert updater.cur_tau == base
    taus = []
    for step in range(steps + 2):
        updater.update_tau(step, steps)
        taus.append(updater.cur_tau)
    assert abs(taus[0] - base) < ROUNDING and taus[-2] == taus[-1] == final
    assert all(after >= before - ROUNDING for before, after in zip(taus, taus[1:], strict=False))
    assert all(base - ROUNDING <= tau <= final for tau in taus)
    # Of the step alone, and so the same after a resume.
    updater = MomentumUpdater(base, final)
    updater.update_tau(steps // 2, steps)
    assert updater.cur_tau == taus[steps // 2]


@given(st.floats(0, 1), st.integers(0, 2**32 - 1))
def test_an_average_lies_between_what_it_is_of(tau, seed):
    generator = torch.Generator().manual_seed(seed)
    online, momentum = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
    for network in (online, momentum):
        network.weight.data.normal_(generator=generator)
    before, updater = momentum.weight.clone(), MomentumUpdater(tau, 1.0)
    updater.update(online, momentum)
    expected = tau * before.double() + (1 - tau) * online.weight.double()
    torch.testing.assert_close(momentum.weight.double(), expected.detach(), rtol=0, atol=1e-6)
    # Where nothing differs nothing moves, however often.
    for network in (online, momentum):
        network.weight.data.fill_(0.1)
    for _ in range(10):
        updater.update(online, momentum)
    assert torch.equal(momentum.weight, online.weight)
