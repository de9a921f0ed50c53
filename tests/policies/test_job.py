import equinox as eqx
import jax
import pytest

from jumpyworld import policies
from jumpyworld.errors import ConfigError
from jumpyworld.policies.job import policy_job
from jumpyworld.storage import schema
from jumpyworld.storage.trees import is_array
from jumpyworld.training import TrainingConfig, train


@pytest.mark.parametrize("name", policies.ALGORITHMS)
def test_a_job_reads_the_data_it_is_given(name, walks):
    """Traced with shapes alone: a dataset in a closure would show as a constant of the program."""
    dataset, data, spec = walks
    config = policies.get(name).config.preset("debug")
    job = policy_job(name, dataset, config)
    state = eqx.filter_eval_shape(job.init, jax.random.key(0))
    arrays, static = eqx.partition((state, job.data), is_array)
    traced = jax.make_jaxpr(
        lambda a, key: eqx.filter(job.step(*eqx.combine(a, static), key), is_array)
    )(arrays, jax.random.key(0))
    assert all(const.size < dataset.num_states for const in traced.consts)
    assert eqx.tree_equal(job.data, data)
    assert schema.from_json(policies.PolicySpec, job.spec) == spec
    assert job.kind == name
    assert job.fingerprints == {"dataset": dataset.fingerprint(), "domain": None}


def test_who_climbs_a_critic_tells_whether_its_slopes_agree(walks):
    for name in policies.ALGORITHMS:
        job = policy_job(name, walks[0], policies.get(name).config.preset("debug"))
        if name not in ("crl", "gctd3", "gc1s"):
            assert job.probe is None
            continue
        metrics = job.probe(job.init(jax.random.key(0)), job.data, jax.random.key(1))
        assert -1 <= metrics["actor/slope_agreement"] <= 1


def test_settings_of_another_algorithm_are_refused(walks):
    with pytest.raises(ConfigError, match="crl needs a CRLConfig, not a GCBCConfig"):
        policy_job("crl", walks[0], policies.get("gcbc").config.preset("debug"))


def test_only_policies_with_a_target_network_have_its_rate():
    with_rate = {n for n, a in policies.ALGORITHMS.items() if hasattr(a.config, "target_rate")}
    assert with_rate == {"gctd3", "gc1s", "hiql", "sharsa"}


def test_a_run_with_a_target_network_goes_on_bit_for_bit(walks, tmp_path):
    """Both halves of two seeds give the files of a run that was never stopped."""
    config = policies.get("gctd3").config.preset("debug")

    def run(folder, *ends):
        for steps in ends:
            settings = TrainingConfig(steps=steps, num_seeds=2, save_every=100)
            train(policy_job("gctd3", walks[0], config), tmp_path / folder, settings)
        files = (tmp_path / folder / "checkpoints" / "step-000000006").glob("*.safetensors")
        return {file.name: file.read_bytes() for file in files}

    straight = run("straight", 6)
    assert set(straight) == {"model.safetensors", "train_state.safetensors"}
    assert run("stopped", 3, 6) == straight
