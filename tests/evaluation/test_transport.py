import numpy as np
import pytest

from jumpyworld.errors import ConfigError
from jumpyworld.evaluation import transport
from jumpyworld.evaluation.transport import emd, emds


def normal(n, d, seed, shift=0.0):
    return np.random.default_rng(seed).normal(size=(n, d)) + shift


@pytest.mark.parametrize("solver", ["pot", "scipy"])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_emd_of_a_shift_is_its_length(solver, far):
    if solver == "pot":
        pytest.importorskip("ot")
    x = normal(64, 3, 0, far)
    assert emd(x, x, solver) == 0.0
    assert emd(x, x + np.array([3.0, 4.0, 0.0]), solver) == pytest.approx(5.0, abs=1e-9)
    assert emd(x, x[::-1], solver) == 0.0


@pytest.mark.parametrize(("n", "d"), [(32, 2), (100, 29), (257, 2)])
def test_pot_and_scipy_agree(n, d):
    pytest.importorskip("ot")
    x, y = normal(n, d, 1), normal(n, d, 2, 0.3)
    assert emd(x, y, "pot") == pytest.approx(emd(x, y, "scipy"), abs=1e-6)


def test_emd_by_hand():
    x, y = np.array([[0.0], [1.0], [5.0]]), np.array([[6.0], [0.5], [1.0]])
    assert emd(x, y) == pytest.approx((0.5 + 0.0 + 1.0) / 3)


def test_without_pot_scipy_steps_in(monkeypatch):
    import sys

    x, y = normal(40, 2, 3), normal(40, 2, 4)
    expected = emd(x, y)
    monkeypatch.setitem(sys.modules, "ot", None)
    assert emd(x, y) == pytest.approx(expected, abs=1e-9)
    with pytest.raises(ConfigError, match="POT"):
        emd(x, y, "pot")


def test_a_simplex_that_gives_up_is_not_believed(monkeypatch):
    pytest.importorskip("ot")
    x, y = normal(60, 2, 5), normal(60, 2, 6)
    exact = emd(x, y, "scipy")
    monkeypatch.setattr(transport, "MAX_PIVOTS", 1)
    with pytest.warns(UserWarning, match="numItermax"):
        assert emd(x, y) == pytest.approx(exact, abs=1e-9)


def test_bad_samples_are_refused():
    with pytest.raises(ConfigError, match="emd"):
        emd(np.zeros((3, 2)), np.zeros((4, 2)))
    with pytest.raises(ConfigError, match="finite"):
        emd(np.full((3, 2), np.nan), np.zeros((3, 2)))


def test_one_and_two_workers_give_the_same_bits():
    jobs = [(normal(50, 2, i), normal(50, 2, 100 + i)) for i in range(6)]
    seen = []
    alone = emds(jobs, workers=1, progress=lambda *now: seen.append(now))
    np.testing.assert_array_equal(alone, emds(jobs, workers=2))
    np.testing.assert_array_equal(alone, [emd(*job) for job in jobs])
    assert seen == [(i, 6) for i in range(7)]
    with pytest.raises(ConfigError, match="finite"):
        emds([jobs[0], (np.full((3, 2), np.inf), np.zeros((3, 2)))], workers=2)
