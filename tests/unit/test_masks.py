"""Action masks: what the environment forbids is never proposed, drawn, bootstrapped from or done."""

import functools
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from aql import agents, envs
from aql.actions import ActionSpace, Discrete, Interval
from aql.config import Config
from aql.envs.gym_vector import GymVector
from aql.errors import UserError
from aql.networks import apply
from aql.networks.proposals import NEGLIGIBLE, Proposal
from aql.runtime.local import Trainer

HYBRID = ActionSpace((Discrete(3), Interval(-1, 1, bins=5), Discrete(2)))
NESTED = spaces.Dict(
    {"a": spaces.Discrete(2), "b": spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.Box(0, 1, (2,))])}
)


def test_allowed_in_numbers() -> None:
    allowed = HYBRID.allowed(jnp.array([[1, 0, 1, 0, 1]], bool))
    assert allowed is not None
    expected = [[1, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 1, 0, 0, 0]]
    np.testing.assert_array_equal(allowed[0], np.array(expected, bool))
    assert HYBRID.allowed(jnp.ones((4, 0), bool)) is None


@pytest.mark.parametrize(
    ("space", "mask", "expected"),
    [
        (spaces.Discrete(3, start=5), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), [True, True, False, False, True], [1, 1, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), (np.array([0, 1]), np.array([1, 1, 0])), [0, 1, 1, 1, 0]),
        (spaces.MultiBinary(2), np.array([[1, 0], [1, 1]]), [1, 0, 1, 1]),
        (spaces.MultiBinary(3), np.array([0, 1, 2], np.int8), [1, 0, 0, 1, 1, 1]),  # as Gymnasium samples with it
        (
            spaces.MultiDiscrete(np.array([[2, 3], [2, 1]])),
            ((np.array([0, 1]), np.array([1, 1, 0])), (np.array([1, 0]), np.array([1]))),
            [0, 1, 1, 1, 0, 1, 0, 1],
        ),
        (NESTED, np.array([1, 0, 1, 1, 1, 0, 0]), [1, 0, 1, 1, 1, 0, 0]),
        (NESTED, {"a": np.array([0, 1]), "b": ((np.array([1, 0]), np.array([1, 1, 0])), None)}, [0, 1, 1, 0, 1, 1, 0]),
        (NESTED, {"a": None, "b": (None, None)}, [1] * 7),
    ],
)
def test_masks_as_the_ecosystem_gives_them(space: Any, mask: Any, expected: Any) -> None:
    given = ActionSpace.from_gymnasium(space).mask_from_env(mask)
    assert given.dtype == bool
    np.testing.assert_array_equal(given, expected)


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (spaces.Discrete(3), np.ones(4), r"shape \(4,\): expected 3 entries"),
        (spaces.Discrete(3), np.zeros(3), "allows no choice of sub-action 0"),
        (spaces.MultiDiscrete([2, 2]), np.array([1, 1, 0, 0]), "allows no choice of sub-action 1"),
        (spaces.Discrete(2), np.array([0, 2]), "entry 2: expected 0 and 1"),
        (spaces.Discrete(2), [], "0 entries for Discrete"),
        (NESTED, {"a": None}, r"a dict with the keys \['a', 'b'\]"),
        (NESTED, {"a": None, "b": (None,)}, "a tuple of 2"),
        (NESTED, {"a": np.ones(3), "b": None}, "3 entries for Discrete"),
    ],
)
def test_wrong_masks_are_refused(space: Any, mask: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ActionSpace.from_gymnasium(space).mask_from_env(mask)


def test_masked_samples_are_uniform_over_what_is_allowed() -> None:
    allowed = HYBRID.allowed(jnp.array([[1, 0, 1, 0, 1], [1, 1, 1, 1, 0]], bool))
    actions = np.asarray(HYBRID.sample(jax.random.key(0), (2, 6000), allowed))
    assert set(np.unique(actions[0, :, 0])) == {0, 2}
    assert set(np.unique(actions[0, :, 2])) == {1}
    assert set(np.unique(actions[1, :, 2])) == {0}
    assert set(np.unique(actions[..., 1])) == {-1, -0.5, 0, 0.5, 1}
    tolerance = 4 * np.sqrt(0.25 / 6000)
    np.testing.assert_allclose(np.mean(actions[0, :, 0] == 0), 1 / 2, atol=tolerance)
    np.testing.assert_allclose(np.mean(actions[1, :, 0] == 1), 1 / 3, atol=tolerance)
    np.testing.assert_allclose(np.mean(actions[1, :, 1] == -0.5), 1 / 5, atol=tolerance)


@pytest.mark.parametrize("autoregressive", [True, False])
def test_a_masked_proposal_is_a_distribution_over_what_is_allowed(autoregressive: bool) -> None:
    proposal = Proposal(HYBRID, (8,), autoregressive)
    embedding = jnp.ones((1, 3))
    params = proposal.init(jax.random.key(0), embedding, jnp.zeros((1, 3)), method="likelihood")
    params = jax.tree.map(lambda leaf: leaf + 0.7, params)
    allowed = HYBRID.allowed(jnp.array([[0, 1, 1, 0, 1]], bool))
    everything = jnp.asarray(HYBRID.enumerate())
    states = jnp.ones((len(everything), 3))
    log_prob = apply(proposal, params, states, everything, allowed, method="likelihood").log_prob
    permitted = (everything[:, 0] > 0) & (everything[:, 2] == 1)
    np.testing.assert_allclose(jnp.sum(jnp.exp(log_prob[permitted])), 1, rtol=1e-5)
    assert np.all(np.exp(log_prob[~permitted]) == 0)
    samples = apply(proposal, params, embedding, jax.random.key(1), 2000, allowed, method="sample")[0]
    assert bool(jnp.all((samples[:, 0] > 0) & (samples[:, 2] == 1)))


@pytest.mark.parametrize("autoregressive", [True, False])
def test_rounding_does_not_lead_to_a_masked_choice_among_many(autoregressive: bool) -> None:
    space = ActionSpace((Discrete(1000),))
    proposal = Proposal(space, (4,), autoregressive=autoregressive)
    permitted = np.random.default_rng(0).random(1000) < 0.3
    parameters = np.random.default_rng(1).normal(size=(1000, 1, 1)).astype(np.float32)
    parameters[~permitted] = NEGLIGIBLE
    edges = np.cumsum(np.exp(parameters[:, 0, 0], dtype=np.float64))
    near = np.concatenate([np.round(edges / edges[-1] * 2**23) + k for k in range(-8, 9)])  # noise as it is drawn
    noise = np.clip(near, 0, 2**23 - 1).astype(np.float32) / 2**23
    drawn = proposal._invert(jnp.asarray(parameters), jnp.asarray(noise)[None], 0)
    assert permitted[np.asarray(drawn, int)].all()


class Gate(gymnasium.Env):
    """Raises at a forbidden action. What is forbidden pays best, so that a learner would love to do it."""

    observation_space = spaces.Box(-1, 1, (3,))
    length = 7

    def __init__(self, action_space: spaces.Space, through: str, broken_at: int = -1) -> None:
        self.action_space = action_space
        self._through, self._broken_at = through, broken_at
        self._ours = ActionSpace.from_gymnasium(action_space)
        self.forbidden_seen = 0
        if through == "method":
            self.action_masks = self._mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        return self._observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        index = self._ours.from_env(action)[self._ours.mask_sizes > 0].astype(int)
        starts = np.concatenate([[0], np.cumsum(self._ours.mask_sizes[self._ours.mask_sizes > 0])[:-1]])
        if not self._now[starts + index].all():
            raise AssertionError(f"{action} is forbidden at step {self._t}")
        self.forbidden_seen += int(np.sum(~self._now))
        self._t += 1
        observation, info = self._observe()
        return observation, float(np.sum(index)), self._t == self.length, False, info

    def _observe(self) -> tuple[Any, dict[str, Any]]:
        sizes = [n for n in self._ours.mask_sizes if n > 0]
        parts = []
        for n in sizes:
            part = self.np_random.random(n) < 0.5
            part[self.np_random.integers(n)] = True
            part[-1] &= self.np_random.random() < 0.2 or not part[:-1].any()  # the best choice is rarely allowed
            parts.append(part)
        self._now = np.concatenate(parts)
        if self._t == self._broken_at:
            self._now[:] = False
        observation = self.np_random.uniform(-1, 1, 3).astype(np.float32)
        ended = self._t == self.length
        if ended:
            self._now = np.zeros_like(self._now)  # as many environments do where nothing is left to choose
        return observation, {"action_mask": self._now.astype(np.int8)} if self._through == "info" else {}

    def _mask(self) -> np.ndarray:
        return self._now


SMALL: dict[str, Any] = {
    "env": "python",
    "critic_layers": (16, 16),
    "proposal_layers": (16,),
    "actors": 4,
    "batch_size": 16,
    "replayed_per_new": 0,  # what matters are actions: few updates do
    "random_steps": 400,
    "num_proposal": 4,
    "num_uniform": 4,
    "learner_num_proposal": 2,
    "learner_num_uniform": 2,
    "cem_samples": 6,
    "cem_elites": 2,
    "cem_iterations": 2,
    "enumerate_small": False,
    "eval_episodes": 2,
    "eval_every": 2_000,
}
SPACES = {
    "discrete": spaces.Discrete(6, start=2),
    "structured": spaces.Tuple([spaces.MultiDiscrete([4, 3]), spaces.Box(-1, 1, (1,)), spaces.Discrete(5)]),
}


@pytest.mark.parametrize(
    ("agent", "space", "through"),
    [
        ("aql", "structured", "method"),
        ("aql-gaussian", "structured", "info"),
        ("qtopt", "structured", "info"),
        ("exact", "discrete", "info"),
    ],
)
def test_ten_thousand_steps_without_a_forbidden_action(agent: str, space: str, through: str) -> None:
    gates = [Gate(SPACES[space], through) for _ in range(4)]
    config = Config(agent=agent, **SMALL)
    trainer = Trainer.in_process(
        config, envs.from_envs(gates), envs.from_envs([Gate(SPACES[space], through) for _ in range(2)])
    )
    stored: list[Any] = []
    add = trainer.learner.add

    def watch(unrolls: Any) -> None:
        stored.append(unrolls)
        add(unrolls)

    trainer.learner.add = watch  # type: ignore[method-assign]
    while trainer.actor.steps < 10_000:
        trainer.step(lambda *_, **__: None)
    assert sum(gate.forbidden_seen for gate in gates) > 10_000
    # What the learner bootstraps with: the best actions, of the actors and of its own search.
    ours = trainer.agent.space
    search = trainer.agent.learner_search  # type: ignore[attr-defined]

    @jax.jit
    def chosen_and_allowed(unrolls: Any) -> Any:
        best = unrolls.extras["best_action"].reshape(-1, ours.dimensions)
        allowed: Any = ours.allowed(unrolls.mask.reshape(len(best), unrolls.mask.shape[-1]))
        embedding = unrolls.observation.reshape(len(best), 3)
        params = trainer.learner.params.search
        found = search(params, jax.random.key(1), embedding, lambda c: jnp.sum(c, -1), best[:, None], allowed)
        return [_all_allowed(ours, allowed, action) for action in (best, found.action)]

    for unrolls in stored[::500]:
        assert all(chosen_and_allowed(unrolls))


def _all_allowed(space: ActionSpace, allowed: Any, action: Any) -> Any:
    index = space.to_index(action)[..., None]
    return jnp.all(jnp.take_along_axis(allowed, index, axis=-1))


def test_the_bootstrap_is_the_best_of_what_is_allowed() -> None:
    """One choice is forbidden everywhere and never tried: its Q of 100 must not leak into a target."""
    from aql.agents.base import EnvSpec
    from aql.experience import Unroll

    space = ActionSpace((Discrete(3),))
    config = Config(agent="exact", num_critics=1, normalise_observations=False, critic_layers=(4,))
    agent: Any = agents.make(config, EnvSpec((1,), space))
    state = jax.tree.map(jnp.zeros_like, agent.init(jax.random.key(0)))
    critic = state.params.network.critics[0]["params"]
    critic["action_tower"]["kernel"] = jnp.eye(3, 4) * jnp.array([1.0, 2.0, 100.0, 0.0])
    critic["output"]["kernel"] = jnp.ones((4, 1))
    state = state._replace(target=state.params.network)
    shape = (1, 2)
    unroll = Unroll(
        observation=np.zeros((*shape, 1), np.float32),
        action=np.zeros((*shape, 1), np.float32),
        reward=np.ones(shape, np.float32),
        discount=np.ones(shape, np.float32),
        first=np.zeros(shape, bool),
        mask=np.broadcast_to(np.array([1, 1, 0], bool), (*shape, 3)),
        extras={"best_action": np.zeros((*shape, 1), np.float32), "from_proposal": np.zeros(shape, bool)},
    )
    _, metrics = agent.update(state, jax.random.key(0), unroll)
    np.testing.assert_allclose(metrics["target_mean"], 1 + 0.99 * 2, rtol=1e-5)


def test_an_empty_mask_names_its_step() -> None:
    env = envs.from_envs([Gate(SPACES["discrete"], "info", broken_at=3)])
    now = env.reset(0)
    for _ in range(2):
        env.send(np.argmax(now.mask, axis=1)[:, None].astype(np.float32))
        now = env.receive()
    env.send(np.argmax(now.mask, axis=1)[:, None].astype(np.float32))
    with pytest.raises(UserError, match=r"no choice of sub-action 0: .* \(at step 3 of an episode\)"):
        env.receive()


def test_a_mask_that_comes_and_goes_is_refused() -> None:
    gate = Gate(SPACES["discrete"], "info")
    env = envs.from_envs([gate])
    now = env.reset(0)
    gate._through = "nothing"
    env.send(np.argmax(now.mask, axis=1)[:, None].astype(np.float32))
    with pytest.raises(UserError, match="has 0 entries at step 1 of an episode and had 6 before"):
        env.receive()


def test_all_environments_of_a_vector_mask_or_none() -> None:
    space = SPACES["discrete"]
    with pytest.raises(UserError, match=r"masks of \[6, 0\] entries: all of them must mask"):
        envs.from_envs([Gate(space, "info"), Gate(space, "nothing")]).reset(0)
    some = gymnasium.vector.SyncVectorEnv([lambda: Gate(space, "info"), lambda: Gate(space, "nothing")])
    with pytest.raises(UserError, match="no action mask in environment 1, 0 steps after the reset"):
        GymVector(some).reset(0)
    broken = GymVector(gymnasium.vector.SyncVectorEnv([lambda: Gate(space, "info", broken_at=1) for _ in range(2)]))
    now = broken.reset(0)
    broken.send(np.argmax(now.mask, axis=1)[:, None].astype(np.float32))
    with pytest.raises(UserError, match=r"no choice of sub-action 0: .*\(in environment 0, 1 steps after the reset\)"):
        broken.receive()
    gate = Gate(space, "info")
    going = GymVector(gymnasium.vector.SyncVectorEnv([lambda: gate]))
    now = going.reset(0)
    gate._through = "nothing"
    going.send(np.argmax(now.mask, axis=1)[:, None].astype(np.float32))
    with pytest.raises(UserError, match="no action mask in environment 0, 1 steps after the reset"):
        going.receive()


@pytest.mark.parametrize("through", ["info", "method"])
@pytest.mark.parametrize(
    "kind",
    [gymnasium.vector.SyncVectorEnv, functools.partial(gymnasium.vector.AsyncVectorEnv, context="spawn")],
    ids=["sync", "async"],  # a process with JAX's threads in it had better not fork
)
def test_masks_of_a_vector_environment(kind: Any, through: str) -> None:
    space = SPACES["structured"]
    env = GymVector(kind([functools.partial(Gate, space, through) for _ in range(3)]))
    now = env.reset(0)
    rng = np.random.default_rng(0)
    ended = 0
    for _ in range(30):
        assert now.mask.shape == (3, 12)
        allowed = env.action_space.allowed(jnp.asarray(now.mask))
        env.send(np.asarray(env.action_space.sample(jax.random.key(rng.integers(1 << 30)), (3, 1), allowed))[:, 0])
        now = env.receive()
        ended += int(now.last.sum())
        assert now.discount[now.last].max(initial=0) == 0
    assert ended == 3 * 3
    env.close()
