import numpy as np
import pytest

from jumpyworld.data import Dataset
from jumpyworld.data.validate import CHECKS, data_error, remarks
from jumpyworld.errors import ConfigError, DataError


def good(n=30, d=4, da=2, ends=(9, 19, 29)):
    rng = np.random.default_rng(0)
    terminals = np.zeros(n, dtype=bool)
    terminals[list(ends)] = True
    return {
        "observations": rng.normal(size=(n, d)).astype(np.float32),
        "actions": rng.uniform(-1, 1, (n, da)).astype(np.float32),
        "terminals": terminals,
    }


def build(arrays, **kwargs):
    arrays = dict(arrays)
    core = [arrays.pop(key) for key in ("observations", "actions", "terminals")]
    return Dataset.from_arrays(*core, extras=arrays, source="set.npz", **kwargs)


def put(key, where, value, **extra):
    def change(arrays):
        arrays.update({k: v.copy() for k, v in extra.items()})
        arrays[key] = arrays[key].copy()
        arrays[key][where] = value

    return change


def swap(key, function):
    def change(arrays):
        arrays[key] = function(arrays[key])

    return change


QPOS = np.zeros((30, 3))

# Name of the check that lets the set through (None: nothing does), the change, and what the
# message must name.
BAD = {
    "nan observation": (
        "non-finite",
        put("observations", (7, 2), np.nan),
        "observations 1 nan 7 2",
    ),
    "inf observation": (
        "non-finite",
        put("observations", (3, 0), np.inf),
        "observations 1 inf 3 0",
    ),
    "-inf observations": (
        "non-finite",
        put("observations", (slice(4, 7), 1), -np.inf),
        "3 -inf 4 1",
    ),
    "nan column": ("non-finite", put("observations", (slice(None), 3), np.nan), "30 nan 0 3"),
    "nan action": ("non-finite", put("actions", (29, 1), np.nan), "actions 1 nan 29 1"),
    "nan qpos": ("non-finite", put("qpos", (5, 2), np.nan, qpos=QPOS), "qpos 1 nan 5 2"),
    "nan reward": ("non-finite", put("rewards", 6, np.nan, rewards=QPOS[:, 0]), "rewards nan 6 0"),
    "float64 above float32": (
        "non-finite",
        swap("observations", lambda a: np.where(np.arange(4) == 1, 1e300, a.astype(np.float64))),
        "observations 30 inf 0 1",
    ),
    "1e30 column": ("huge-values", put("observations", (slice(None), 2), 1e30), "30 1e+30 0 2"),
    "-1e7 entry": ("huge-values", put("observations", (8, 3), -1e7), "1 -1e+07 8 3"),
    "action above": ("actions-out-of-range", put("actions", (4, 1), 1.5), "1 1.5 4 1 actions"),
    "action below": ("actions-out-of-range", put("actions", (4, 0), -3), "1 -3 4 0 actions"),
    "worst action": (
        "actions-out-of-range",
        put("actions", (slice(10, 14), 0), [1.1, 1.2, -7, 1.3]),
        "4 values 4 rows -7 12 0",
    ),
    "action just above": ("actions-out-of-range", put("actions", (0, 0), 1.0001), "1.0001 0"),
    "missing last end": ("open-end", put("terminals", 29, False), "terminals 29 19"),
    "no end at all": (
        "open-end",
        put("terminals", slice(None), False),
        "terminals 29 no trajectory",
    ),
    "one state first": ("short-trajectory", put("terminals", 0, True), "1 4 0"),
    "one state inside": ("short-trajectory", put("terminals", 10, True), "1 4 10"),
    "one state last": ("short-trajectory", put("terminals", 28, True), "1 4 29"),
    "only single states": (None, put("terminals", slice(None), True), "30 of 30 0"),
    "flags of two": (None, swap("terminals", lambda a: 2 * a.astype(int)), "terminals 3 2 9"),
    "nan flag": (None, swap("terminals", lambda a: np.where(a, np.nan, 0)), "terminals 3 nan 9"),
    "flags 2-D": (None, swap("terminals", lambda a: np.stack([a, a], 1)), "terminals (30, 2)"),
    "text flags": (None, swap("terminals", lambda a: a.astype("U1")), "terminals <U1"),
    "rows of actions": (None, swap("actions", lambda a: a[:-1]), "actions (29, 2) 30"),
    "rows of terminals": (None, swap("terminals", lambda a: a[1:]), "terminals (29,) 30"),
    "rows of extra": (None, lambda a: a.update(qvel=QPOS[:7]), "qvel (7, 3) 30"),
    "scalar extra": (None, lambda a: a.update(seed=np.array(3)), "seed () 30"),
    "text extra": (None, lambda a: a.update(note=np.array(["x"] * 30)), "note <U1"),
    "object extra": (None, lambda a: a.update(note=np.array([None] * 30)), "note object"),
    "1-D observations": (None, swap("observations", lambda a: a[:, 0]), "observations (30,)"),
    "3-D observations": (None, swap("observations", lambda a: a[:, :, None]), "observations 30, 4"),
    "no columns": (None, swap("actions", lambda a: a[:, :0]), "actions (30, 0)"),
    "bool observations": (None, swap("observations", lambda a: a > 0), "observations bool"),
    "complex observations": (None, swap("observations", lambda a: a + 0j), "observations complex"),
    "text actions": (None, swap("actions", lambda a: a.astype("U8")), "actions <U8"),
    "object actions": (None, swap("actions", lambda a: a.astype(object)), "actions object"),
    "empty": (None, lambda a: a.update({k: v[:0] for k, v in a.items()}), "observations empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_set_is_named_and_only_its_own_check_lets_it_pass(name):
    allow, change, words = BAD[name]
    arrays = good()
    change(arrays)
    with pytest.raises(DataError) as caught:
        build(arrays)
    message = str(caught.value)
    assert message.startswith("set.npz: ") and "\n" not in message
    for word in words.split():
        assert word in message, message
    others = [check for check in CHECKS if check != allow]
    if allow in CHECKS:
        assert f"'{allow}'" in message
        build(arrays, allow=(allow,))
    with pytest.raises(DataError):
        build(arrays, allow=others)


def test_allowed_values_are_left_as_they_are():
    arrays = good()
    arrays["actions"][4, 1] = 1.5
    assert build(arrays, allow=("actions-out-of-range",)).actions[4, 1] == 1.5
    arrays = good(ends=(9, 19))
    assert build(arrays, allow=("open-end",)).ends.tolist() == [9, 19, 29]
    arrays = good(ends=(0, 9, 10, 29))
    data = build(arrays, allow=("short-trajectory",))
    assert data.lengths.tolist() == [0, 8, 0, 18] and 0 not in data.valid_indices


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", "i1", "u1", "i4", "i8", "u8"])
def test_number_types_become_float32(dtype):
    arrays = good()
    arrays["observations"] = np.arange(120).reshape(30, 4).astype(dtype)
    data = build(arrays)
    assert data.observations.dtype == np.float32
    np.testing.assert_array_equal(data.observations, np.arange(120).reshape(30, 4))


def test_shortest_sets():
    arrays = {k: v[:2] for k, v in good().items()} | {"terminals": np.array([0, 1.0])}
    assert build(arrays).valid_indices.tolist() == [0]
    arrays["actions"] = arrays["actions"] * 0 + np.float32(1 + 5e-6)  # rounding, not out of range
    assert build(arrays).num_transitions == 1


def test_bounds_of_actions_may_be_set():
    arrays = good()
    arrays["actions"] *= 2
    build(arrays, action_low=-2.0, action_high=2.0)
    with pytest.raises(DataError, match=r"outside \[-1\.0, 1\.0\]"):
        build(arrays)


@pytest.mark.parametrize(
    ("domain", "d", "da"),
    [
        ("antmaze-large-navigate-v0", 29, 8),
        ("antmaze-large", 29, 8),
        ("cube-double-play-v0", 37, 5),
    ],
)
def test_widths_are_those_of_the_domain(domain, d, da):
    assert build(good(d=d, da=da), domain=domain).observation_dim == d
    for wrong, key in (((d - 1, da), "observations"), ((d, da + 1), "actions")):
        arrays = good(d=wrong[0], da=wrong[1])
        with pytest.raises(DataError, match=f"{key} has .* columns, but .* has .*'dimensions'"):
            build(arrays, domain=domain)
        build(arrays, domain=domain, allow=("dimensions",))


def test_unknown_domain_has_no_widths():
    assert build(good(), domain="my-robot").domain == "my-robot"


@pytest.mark.parametrize("allow", [("clip",), "open-end", ("open-end", "NaN")])
def test_unknown_allow_is_refused(allow):
    with pytest.raises(ConfigError, match="must be one of"):
        build(good(), allow=allow)


def test_messages_stay_on_one_line():
    message = str(data_error("a\nb\u202e\x00.npz", "x\ty\r\n" * 500))
    assert message.isprintable() and len(message) <= 600


def test_remarks_tell_constant_columns_and_repeats():
    arrays = good()
    assert remarks(arrays["observations"], arrays["actions"]) == ()
    arrays["observations"][:, 2] = 4
    arrays["observations"][8] = arrays["observations"][7]
    arrays["actions"][8] = arrays["actions"][7]
    lines = remarks(arrays["observations"], arrays["actions"])
    assert lines == (
        "observations column 2 is constant at 4",
        "1 rows repeat the row before, first row 8",
    )
