"""The Python API: familiar, typed, and the same training as the command's."""

import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import aql
from aql import cli, envs
from aql.evaluation import Evaluator

SMALL: dict[str, Any] = {
    "critic_layers": (32, 32),
    "proposal_layers": (32,),
    "actors": 4,
    "batch_size": 64,
    "replayed_per_new": 15,
    "learning_rate": 3e-3,
    "proposal_learning_rate": 3e-3,
    "random_steps": 200,
    "log_every": 400,
    "eval_every": 800,
    "eval_episodes": 2,
    "replay_capacity": 5_000,
}


class Reach(gymnasium.Env):
    """A discrete and a continuous choice: press the right button while pointing where the observation says."""

    action_space = gymnasium.spaces.Dict(
        {"button": gymnasium.spaces.Discrete(3, start=1), "point": gymnasium.spaces.Box(-2.0, 2.0, (2,))}
    )
    observation_space: Any = gymnasium.spaces.Box(-1.0, 1.0, (3,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        return self.state, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        right = action["button"] == (1 if self.state[2] > 0 else 3)
        distance = np.abs(np.sign(self.state[:2]) - action["point"]).mean()
        return self.state, float(0.5 * right + 0.5 * max(0.0, 1 - distance)), True, False, {}


@pytest.fixture(scope="module")
def trained() -> aql.AQL:
    return aql.AQL(Reach, seed=1, **SMALL).learn(6_000, progress=False)


def test_a_hybrid_space_is_learned_from_a_factory(trained: aql.AQL) -> None:
    """A random policy scores 0.25 on average; always the best button and point score 1."""
    assert trained.actor_steps == 6_000
    assert trained.evaluate(100).mean > 0.8


def test_predict_gives_actions_of_the_environment(trained: aql.AQL) -> None:
    observations = Reach.observation_space.sample(), Reach.observation_space.sample()
    for deterministic in (True, False):
        action = trained.predict(observations[0], deterministic)
        assert Reach.action_space.contains(action)
    batch = trained.predict(np.stack(observations))
    assert batch["button"].shape == (2,)
    assert batch["point"].shape == (2, 2)
    greedy = trained.predict(np.array([1.0, 1.0, 1.0], np.float32))
    assert greedy["button"] == 1
    with pytest.raises(aql.UserError, match=r"shape \(4,\): expected \(3,\)"):
        trained.predict(np.zeros(4))


def test_saved_and_loaded_it_acts_and_learns_on_in_the_same_way(trained: aql.AQL, tmp_path: Path) -> None:
    trained.save(tmp_path / "agent")
    with pytest.raises(aql.UserError, match="pass it"):
        aql.load(tmp_path / "agent")
    loaded = aql.load(tmp_path / "agent", Reach)
    assert loaded.config == trained.config
    again = aql.load(tmp_path / "agent", Reach)
    loaded.learn(400, progress=False)
    again.learn(400, progress=False)
    assert loaded.actor_steps == 6_400
    assert loaded.evaluate(20)[:3] == again.evaluate(20)[:3]


def test_save_does_not_overwrite_what_it_did_not_write(trained: aql.AQL, tmp_path: Path) -> None:
    (tmp_path / "precious.txt").write_text("keep me")
    with pytest.raises(aql.UserError, match="not overwritten"):
        trained.save(tmp_path)
    assert (tmp_path / "precious.txt").read_text() == "keep me"


def test_an_interrupt_comes_between_two_steps() -> None:
    """Not between an action and what it brings: learning goes on afterwards as if it had not been interrupted."""

    def callback(_: dict[str, Any]) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)  # ignored, where a script has started the tests in the background
    model = aql.AQL("toy/bandit-discrete", **SMALL)
    with pytest.raises(KeyboardInterrupt):
        model.learn(2_000, callback, progress=False)
    assert model.actor_steps == 400  # the first line of metrics
    assert signal.getsignal(signal.SIGINT) is before
    straight = aql.AQL("toy/bandit-discrete", **SMALL)
    results = model.learn(600, progress=False).evaluate(10), straight.learn(1_000, progress=False).evaluate(10)
    assert results[0]._replace(seconds=0) == results[1]._replace(seconds=0)


def test_the_callback_sees_metrics_and_can_stop() -> None:
    lines: list[dict[str, Any]] = []

    def callback(metrics: dict[str, Any]) -> bool:
        lines.append(metrics)
        return metrics["actor_steps"] < 800

    model = aql.AQL("toy/bandit-discrete", **SMALL).learn(5_000, callback, progress=False)
    assert model.actor_steps == 800
    assert [line["actor_steps"] for line in lines] == [400, 800, 800]
    assert "eval_return_mean" in lines[-1]
    assert lines[0]["seconds"] > 0


class Held(gymnasium.Wrapper):
    """A wrapper that keeps no record of its arguments, and so has no spec."""


class Uncopied(Reach):
    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("cannot pickle the motor")


def test_an_instance_is_copied_for_every_actor() -> None:
    changed: Any = gymnasium.make("CartPole-v1")
    changed.unwrapped.gravity = 1.25
    model = aql.AQL(changed, **SMALL).learn(400, progress=False)
    assert model.actor_steps == 400
    assert {env._env.unwrapped.gravity for env in model._env._envs} == {1.25}  # type: ignore[attr-defined]
    assert len({id(env._env) for env in model._env._envs}) == SMALL["actors"]  # type: ignore[attr-defined]
    model.close()
    assert aql.AQL(Held(Reach()), **SMALL).config.actors == SMALL["actors"]


class Wider(Reach):
    action_space = gymnasium.spaces.Dict(Reach.action_space.spaces | {"more": gymnasium.spaces.Discrete(2)})


def test_what_is_no_environment_is_refused() -> None:
    with pytest.raises(aql.UserError, match="expected an id"):
        aql.AQL(3)  # type: ignore[arg-type]
    with pytest.raises(aql.UserError, match=r"None, of NoneType: expected a gymnasium\.Env"):
        aql.AQL(lambda: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(aql.UserError, match=r"neither be copied \(cannot pickle the motor\)"):
        aql.AQL(Uncopied())
    with pytest.raises(aql.UserError, match="actors is 4: expected a whole number"):
        aql.AQL(Reach, **(SMALL | {"actors": "4"}))
    made = iter([Reach] * SMALL["actors"] + [Wider] * SMALL["eval_episodes"])
    with pytest.raises(aql.UserError, match="training and evaluation have different spaces"):
        aql.AQL(lambda: next(made)(), **SMALL)


def test_a_run_of_the_command_is_loaded(tmp_path: Path) -> None:
    run = tmp_path / "run"
    options = [f"--{name}={value}" for name, value in SMALL.items() if not isinstance(value, tuple)]
    arguments = ["train", "toy/bandit-discrete", "--steps", "400", "--out", str(run), "--quiet", *options]
    assert cli.main(arguments) == 0
    model = aql.load(run)
    assert model.actor_steps == 400
    action = model.predict(np.zeros(model._env.observations.shape, np.float32))
    assert action.shape == (model._env.action_space.dimensions,)
    with pytest.raises(aql.UserError, match=f"load the run's own folder, {run}"):
        aql.load(next((run / "checkpoints").iterdir()))


def test_greedy_actions_are_a_function_of_the_observation(trained: aql.AQL) -> None:
    state = np.array([0.3, -0.2, 0.1], np.float32)
    actions = [trained.predict(state) for _ in range(20)]
    assert len({(int(action["button"]), *action["point"].tolist()) for action in actions}) == 1
    explored = [trained.predict(state, deterministic=False)["point"].tolist() for _ in range(200)]
    assert len({tuple(point) for point in explored}) > 1


class Nested(Reach):
    """The same with an observation in parts, and a mask that forbids the first button."""

    observation_space = gymnasium.spaces.Dict(
        {"where": gymnasium.spaces.Box(-1.0, 1.0, (3,)), "kind": gymnasium.spaces.Discrete(2)}
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._parts(), {"action_mask": np.array([0, 1, 1])}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert action["button"] != 1
        _, reward, terminated, truncated, _ = super().step(action)
        return self._parts(), reward, terminated, truncated, {"action_mask": np.array([0, 1, 1])}

    def _parts(self) -> dict[str, Any]:
        return {"where": self.state, "kind": int(self.state[2] > 0)}


def test_nested_observations_and_masks_in_predict() -> None:
    model = aql.AQL(Nested, **SMALL).learn(400, progress=False)
    one = {"where": np.zeros(3, np.float32), "kind": 1}
    masks = np.array([0, 0, 1])
    assert model.predict(one, action_masks=masks)["button"] == 3
    batch = {"where": np.zeros((4, 3), np.float32), "kind": np.array([0, 1, 0, 1])}
    np.testing.assert_array_equal(model.predict(batch, action_masks=np.tile(masks, (4, 1)))["button"], [3] * 4)
    stacked = {"button": np.tile(masks, (4, 1)), "point": np.zeros((4, 0))}
    np.testing.assert_array_equal(model.predict(batch, action_masks=stacked)["button"], [3] * 4)
    with pytest.raises(aql.UserError, match="1 action masks for 4 observations"):
        model.predict(batch, action_masks=[masks])
    with pytest.raises(aql.UserError, match="is not in"):
        model.predict({"where": np.zeros(3, np.float32)})


def test_the_environments_of_a_vector_are_the_actors() -> None:
    vectors = [
        gymnasium.make_vec("CartPole-v1", num_envs=3),
        gymnasium.vector.SyncVectorEnv([Reach, Reach]),
    ]
    settings = {name: value for name, value in SMALL.items() if name != "actors"}
    for vector in vectors:
        model = aql.AQL(vector, **settings).learn(402, progress=False)
        assert model.config.actors == vector.num_envs
        assert model.actor_steps == 402
        assert model.evaluate(2).episodes == 2
    with pytest.raises(aql.UserError, match="actors is 5: the vector environment has 2"):
        aql.AQL(vectors[1], **(settings | {"actors": 5}))
    wrapped = gymnasium.wrappers.vector.RescaleAction(gymnasium.make_vec("Pendulum-v1", num_envs=2), -1, 1)
    with pytest.raises(aql.UserError, match="evaluation would go without: wrap each environment"):
        aql.AQL(wrapped, **settings)
    mode = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    with pytest.raises(aql.UserError, match=r"AutoresetMode\.NEXT_STEP"):
        aql.AQL(gymnasium.vector.SyncVectorEnv([Reach], **mode), **settings)  # type: ignore[arg-type]


def test_unknown_settings_are_refused_with_near_names() -> None:
    with pytest.raises(aql.UserError, match="unknown setting 'batchsize': did you mean batch_size"):
        aql.AQL("toy/chain", batchsize=3)


def test_workers_are_for_the_command() -> None:
    with pytest.raises(aql.UserError, match=r"workers is 2.*aql train"):
        aql.AQL("toy/chain", workers=2)


def test_predict_remembers_as_an_evaluation_does() -> None:
    """An untrained policy with a memory, over two episodes: the same actions, and other ones if it never forgets."""
    model = aql.AQL("Pendulum-v1", agent="d3pg", memory_size=16, see_last_action=True, seed=3, **SMALL)
    seen: list[Any] = []
    env = envs.make("Pendulum-v1", 2)
    evaluator = Evaluator(model._trainer.agent, env, seed=0)
    for _ in range(2):
        evaluator.evaluate(
            model._trainer.learner.params,
            watch=lambda now, decision, _: seen.append((now, np.asarray(decision.action))),
        )
    told = [model.predict(now.observation, first=now.first, reward=now.reward) for now, _ in seen]
    decided = [env.action_space.to_env(action) for _, action in seen]
    np.testing.assert_array_equal(told, decided)
    rambling = [model.predict(now.observation, reward=now.reward) for now, _ in seen]
    assert (np.asarray(rambling) != decided).any()
