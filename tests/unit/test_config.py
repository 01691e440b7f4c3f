"""The config: what it refuses, what it writes, and the presets against the paper."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from aql import envs
from aql.agents import AGENTS
from aql.config import Config
from aql.errors import UserError
from aql.presets import FOR_AGENT, FOR_ENV, PRESETS, preset

FIELDS = [field.name for field in dataclasses.fields(Config)]

INVALID: dict[str, list[Any]] = {
    "seed": [-1],
    "steps": [0, -5],
    "action_repeat": [0],
    "actors": [0],
    "epsilon_low": [-0.1, 1.1],
    "epsilon_high": [-0.1, 1.1],
    "few_subactions": [-1, 1.5],
    "noise_theta": [-0.1, 1.1],
    "noise_sigma": [-0.1, float("nan"), float("inf")],
    "random_steps": [-1],
    "num_proposal": [0, -1],
    "num_uniform": [-1],
    "uniform_share": [-0.1, 1.1],
    "learner_num_proposal": [0, -1],
    "learner_num_uniform": [-1],
    "cem_iterations": [0],
    "cem_samples": [0],
    "cem_elites": [0, 1000],
    "bins": [1, 0],
    "critic_layers": [(), (0,), (64, -1), 256, ("a",), (64.0,)],
    "num_critics": [0],
    "proposal_layers": [(), (0,)],
    "gaussian_std": [0, -1, float("inf"), float("nan")],
    "unroll_length": [0],
    "replayed_per_new": [-1],
    "replay_capacity": [0, 1],
    "batch_size": [0],
    "updates_per_call": [0],
    "learning_rate": [0, -1e-3, float("inf"), float("nan")],
    "proposal_learning_rate": [0, -1e-3, float("inf"), float("nan")],
    "gamma": [-0.1, 1.01, float("nan")],
    "lambda_": [-0.1, 1.01, float("nan")],
    "target_ema": [0, -0.1, 1.5],
    "greedy_averages": [-1, 1.5],
    "greedy_turn": [0, -1],
    "entropy_weight": [-0.01, float("nan"), float("inf")],
    "policy_entropy_weight": [-0.01, float("nan"), float("inf")],
    "image_torso": ["large"],
    "embedding_size": [0],
    "memory_size": [-1],
    "effort_weight": [-0.01, float("nan"), float("inf")],
    "workers": [-1, 9],
    "max_restarts": [-1],
    "worker_timeout": [0, -1, float("inf"), float("nan")],
    "eval_every": [0],
    "eval_episodes": [0],
    "checkpoint_every": [0],
    "exploration_hold": [0.5, float("nan"), float("inf")],
    "optimism": [-0.5, float("nan"), float("inf")],
    "pessimism": [-0.5, float("nan"), float("inf")],
    "most_reward": [-1, float("nan"), float("inf")],
    "bias_unit": [0, -1, float("nan"), float("inf")],
    "small_values": [-0.1, 1.0, 1.5, float("nan"), 0.3],  # the last one for want of most_reward
    "prediction_weight": [-0.1, float("nan"), float("inf")],
    "trace_tolerance": [-0.1, float("nan"), float("inf")],
    "magnification": [-1, float("nan"), float("inf")],
    "log_every": [0],
    # Choices, which Python callers can misspell too.
    "preset": ["slow"],
    "epsilon_spacing": ["linear"],
    "interval_encoding": ["binary"],
}
ANY_VALUE = {
    "see_last_action",  # names that are looked up elsewhere, and switches
    "env",
    "agent",
    "epsilon_per_subaction",
    "enumerate_small",
    "fresh_search",
    "normalise_observations",
    "layer_norm",
    "curvature",
    "aligned_replay",
    "act_with_target",
}


def test_every_field_is_covered_here() -> None:
    assert INVALID.keys() | ANY_VALUE == set(FIELDS)


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in INVALID.items() for value in values])
def test_an_invalid_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UserError) as caught:
        Config(**{name: value})
    message = str(caught.value)
    assert name in message
    assert str(value) in message
    assert "\n" not in message


def test_numbers_of_numpy_are_numbers() -> None:
    given: dict[str, Any] = {"seed": np.int64(3), "gamma": np.float32(0.5), "critic_layers": (np.int64(8), 4)}
    expected = Config(seed=3, gamma=0.5, critic_layers=(8, 4))
    assert json.dumps(Config(**given).to_json()) == json.dumps(expected.to_json())


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cem_samples": 10, "cem_elites": 11}, r"cem_elites is 11: expected at most cem_samples \(10\)"),
        ({"unroll_length": 30, "replay_capacity": 30}, r"replay_capacity is 30: expected more than unroll_length \(30"),
    ],
)
def test_values_that_do_not_fit_together(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Config(**values)


@pytest.mark.parametrize(
    "values",
    [
        {"num_proposal": 1},
        {"num_uniform": 0},
        {"epsilon_low": 0, "epsilon_high": 1},
        {"gamma": 1, "lambda_": 0},
        {"target_ema": 1},
        {"entropy_weight": 0},
        {"unroll_length": 30, "replay_capacity": 31},
        {"replayed_per_new": 0},
        {"bins": 2},
        {"cem_samples": 4, "cem_elites": 4},
    ],
)
def test_values_at_the_edge_are_taken(values: dict[str, Any]) -> None:
    config = Config(**values)
    assert {name: getattr(config, name) for name in values} == values


@pytest.mark.parametrize("name", PRESETS)
def test_json_round_trip(name: str) -> None:
    config = preset(name, env="toy/chain", seed=3, critic_layers=(8, 4))
    assert Config.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_the_json_has_every_field() -> None:
    assert set(json.loads(json.dumps(Config().to_json()))) == set(FIELDS)


def test_unknown_keys_raise_with_near_names() -> None:
    with pytest.raises(UserError, match=r"unknown setting 'learning_rat'.*learning_rate"):
        Config.from_json({"learning_rat": 1e-3})
    with pytest.raises(UserError, match=r"unknown setting 'batchsize'.*batch_size"):
        preset("fast", batchsize=3)


def test_unknown_presets_raise_with_near_names() -> None:
    with pytest.raises(UserError, match=r"unknown preset 'papr'.*did you mean paper"):
        preset("papr")


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_has_help(name: str) -> None:
    (field,) = [f for f in dataclasses.fields(Config) if f.name == name]
    text = field.metadata["help"]
    assert len(text) > 8
    assert "\n" not in text


def test_the_paper_preset_is_the_papers_table() -> None:
    config = preset("paper")
    assert (config.num_proposal, config.num_uniform) == (100, 400)
    assert config.bins == 5
    assert config.gaussian_std**2 == 0.25
    assert (config.lambda_, config.gamma) == (0.8, 0.99)
    assert config.target_ema == 1  # no target network
    assert (config.learning_rate, config.proposal_learning_rate) == (2e-4, 2e-4)
    assert config.batch_size == 32
    assert config.unroll_length == 30
    assert config.actors == 100
    assert (config.epsilon_high, config.epsilon_low, config.epsilon_spacing) == (0.5, 0.05, "tenth")
    assert not config.epsilon_per_subaction
    assert config.replay_capacity == 100_000
    assert config.aligned_replay  # uniform over unrolls
    assert config.replayed_per_new == 2
    assert not config.fresh_search  # the actor's a* is stored
    assert not config.enumerate_small
    assert (config.cem_iterations, config.cem_samples, config.cem_elites) == (3, 100, 10)
    assert config.critic_layers == (400, 300)
    assert config.proposal_layers == (300, 200)
    assert config.num_critics == 1
    assert not config.layer_norm
    assert not config.normalise_observations
    assert config.interval_encoding == "value"
    assert config.entropy_weight == 0.01
    assert config.effort_weight == 0
    assert config.random_steps == 0
    assert config.uniform_share == 1
    assert not config.act_with_target


def test_the_fast_preset_is_what_the_design_says() -> None:
    config = preset("fast", env="toy/chain")
    assert config == Config(env="toy/chain")
    assert config.num_critics == 2
    assert config.target_ema < 1
    assert config.layer_norm
    assert config.normalise_observations
    assert config.fresh_search
    assert config.unroll_length < 30
    assert config.learner_num_proposal + config.learner_num_uniform < 100


def test_overrides_win_over_the_preset() -> None:
    config = preset("paper", actors=4, unroll_length=3)
    assert (config.preset, config.actors, config.unroll_length, config.num_uniform) == ("paper", 4, 3, 400)


# Environments and agents that need other settings.


def test_first_person_levels_have_the_papers_settings_of_them() -> None:
    config = preset("paper", env="doom/explore_goal_locations_small")
    assert (config.num_proposal, config.num_uniform) == (100, 500)
    assert (config.image_torso, config.embedding_size, config.memory_size) == ("resnet", 256, 256)
    assert config.see_last_action  # as in the network that the paper takes over
    assert config.unroll_length == 100
    assert config.action_repeat == 1  # the level itself holds an action for 4 frames
    plain = dataclasses.replace(preset("paper"), env=config.env)
    changed = {f for f in FIELDS if getattr(config, f) != getattr(plain, f)}
    assert changed == FOR_ENV["doom/"]["paper"].keys()  # the rest is one for all tasks


def test_agents_go_before_environments() -> None:
    env = "doom/explore_goal_locations_tiny?resolution=42"
    aql, impala = preset("fast", env=env), preset("fast", env=env, agent="impala")
    assert (aql.gamma, aql.unroll_length, aql.replayed_per_new, aql.batch_size) == (0.98, 5, 15, 32)
    assert aql.replay_capacity == 20_000
    assert (impala.gamma, impala.unroll_length, impala.replayed_per_new, impala.batch_size) == (0.98, 16, 0, 4)
    assert preset("fast", env=env, gamma=0.9).gamma == 0.9


def test_what_environments_change_exists() -> None:
    for prefix, by_preset in FOR_ENV.items():
        assert any(env_id.startswith(prefix) for env_id in envs.list_ids())
        assert by_preset.keys() <= PRESETS.keys()
        for name, settings in by_preset.items():
            assert not settings.keys() & {"agent", "preset", "env", "seed"}
            plain = {**PRESETS[name], "preset": name}
            assert Config.from_json(plain | settings) != Config.from_json(plain)


def test_agents_change_the_preset_and_overrides_win() -> None:
    config = preset("fast", agent="impala", batch_size=5)
    assert (config.agent, config.preset) == ("impala", "fast")
    assert config.replayed_per_new == 0  # on-policy
    assert config.random_steps == 0
    assert config.unroll_length >= 16
    assert config.batch_size == 5
    assert config.critic_layers == Config().critic_layers  # all that is not said is the preset's
    config = preset("paper", agent="impala")
    assert (config.actors, config.unroll_length, config.replayed_per_new, config.lambda_) == (100, 30, 0, 1.0)
    assert preset("fast", agent="impala", replayed_per_new=2).replayed_per_new == 2


def test_critics_predict_on_control_tasks_where_it_helps() -> None:
    control = "control/walker-walk"
    assert preset("fast", env=control).prediction_weight == 0.3
    assert preset("fast", env=control, agent="qtopt").prediction_weight == 0.3
    assert preset("fast", env=control, agent="d3pg").prediction_weight == 0
    assert preset("fast", env="CartPole-v1").prediction_weight == 0
    assert preset("paper", env=control).prediction_weight == 0


def test_returns_go_on_beyond_good_actions_on_control_tasks() -> None:
    def settings(config: Config) -> tuple[int, float, float]:
        return config.unroll_length, config.lambda_, config.trace_tolerance

    control = "control/walker-walk"
    assert settings(preset("fast", env=control)) == (8, 1.0, 1.0)
    assert settings(preset("fast", env="CartPole-v1")) == (1, 0.8, 0.0)
    assert settings(preset("paper", env=control)) == (30, 0.8, 0.0)
    assert preset("fast", env=control, agent="impala").unroll_length == 16


def test_d3pg_has_the_papers_noise() -> None:
    for name in PRESETS:
        config = preset(name, agent="d3pg")
        assert (config.noise_theta, config.noise_sigma) == (0.15, 0.2)


def test_what_agents_change_exists() -> None:
    assert FOR_AGENT.keys() <= AGENTS.keys()
    for agent, by_preset in FOR_AGENT.items():
        assert by_preset.keys() <= PRESETS.keys()
        for name, settings in by_preset.items():
            assert not settings.keys() & {"agent", "preset", "env", "seed"}
            changed = preset(name, agent=agent)
            plain = dataclasses.replace(preset(name), agent=agent)
            assert {f for f in FIELDS if getattr(changed, f) != getattr(plain, f)} == settings.keys(), (agent, name)
