"""From observations to embeddings: images, memory, last actions, and what may not flow where."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from aql import agents
from aql.actions import ActionSpace, Discrete, Interval
from aql.agents.base import EnvSpec
from aql.agents.embedding import Embedding
from aql.config import Config
from aql.envs.base import TimeStep, no_masks
from aql.envs.observations import Parts
from aql.experience import Unroll
from aql.networks import apply, pixels

SPACE = ActionSpace((Discrete(3), Interval(-1, 1, bins=5)))
VECTOR = EnvSpec((3,), SPACE)
IMAGE = EnvSpec((12, 12, 3), SPACE, np.dtype(np.uint8))
PARTS = Parts(((12, 12, 3), (8, 4, 1)), 3)
MIXED = EnvSpec((PARTS.num_bytes,), SPACE, np.dtype(np.uint8), PARTS)
SMALL: dict[str, Any] = {"critic_layers": (8,), "proposal_layers": (8,), "embedding_size": 6, "enumerate_small": False}
B, T = 2, 5


def _embedding(env: EnvSpec = VECTOR, **settings: Any) -> Embedding:
    return Embedding(Config(**SMALL, **settings), env, SPACE)


def _unrolls(env: EnvSpec, memory_length: int, seed: int = 0) -> Unroll:
    rng = np.random.default_rng(seed)
    shape = (B, T)
    image = env.observation_dtype == np.uint8
    numbers = rng.normal(size=(*shape, 3)).astype(np.float32)
    observation = rng.integers(0, 256, (*shape, *env.observation_shape)) if image else numbers
    if env.observation_parts is not None:
        observation[..., -12:] = numbers.view(np.uint8)
    action = np.stack([rng.integers(0, 3, shape), rng.integers(-2, 3, shape) / 2], axis=-1).astype(np.float32)
    extras = {"best_action": action, "from_proposal": np.zeros(shape, bool)}
    if memory_length:
        extras["memory"] = rng.normal(size=(*shape, memory_length)).astype(np.float16)
    return Unroll(
        observation=observation.astype(env.observation_dtype),
        action=action,
        reward=rng.normal(size=shape).astype(np.float32),
        discount=np.ones(shape, np.float32),
        first=np.zeros(shape, bool),
        mask=np.ones((*shape, 0), bool),
        extras=extras,
    )


def test_vectors_without_memory_are_left_alone() -> None:
    embedding = _embedding(normalise_observations=False)
    assert embedding.memory_length == 0
    torso = embedding.init(jax.random.key(0))
    assert jax.tree.leaves(torso) == []
    unrolls = _unrolls(VECTOR, 0)
    np.testing.assert_array_equal(
        embedding.learn(torso, embedding.init_statistics(), unrolls), unrolls.observation.astype(np.float32)
    )
    assert embedding.extras(embedding.init_memory(2)) == {}


def test_what_is_near_zero_is_seen_once_more() -> None:
    embedding = _embedding(magnification=10.0)
    unrolls = _unrolls(VECTOR, 0)
    statistics = embedding.observe(embedding.init_statistics(), jnp.asarray(unrolls.observation))
    seen = embedding.learn(embedding.init(jax.random.key(0)), statistics, unrolls)
    deviation = unrolls.observation.std(axis=(0, 1))
    np.testing.assert_allclose(seen[..., :3], embedding.numbers(statistics, unrolls.observation))
    np.testing.assert_allclose(seen[..., 3:], np.tanh(10 * unrolls.observation / deviation) / 10**0.5, atol=1e-5)


def test_what_is_as_it_is_is_magnified_in_its_own_units() -> None:
    embedding = _embedding(magnification=2.0, normalise_observations=False)
    unrolls = _unrolls(VECTOR, 0)
    seen = embedding.learn(embedding.init(jax.random.key(0)), embedding.init_statistics(), unrolls)
    np.testing.assert_allclose(seen[..., 3:], np.tanh(2 * unrolls.observation) / 2**0.5, atol=1e-6)


@pytest.mark.parametrize("see_last_action", [True, False])
@pytest.mark.parametrize("env", [VECTOR, IMAGE, MIXED], ids=["vector", "image", "mixed"])
def test_the_learner_sees_what_the_actor_saw(env: EnvSpec, see_last_action: bool) -> None:
    """Step by step with a memory as an actor, or at once from the memory at the start of an unroll: the same."""
    embedding = _embedding(env, memory_size=4, see_last_action=see_last_action, normalise_observations=False)
    assert embedding.memory_length == 8 + (4 if see_last_action else 0)  # three choices and one value
    torso = embedding.init(jax.random.key(0))
    unrolls = _unrolls(env, embedding.memory_length)
    unrolls.first[1, 3] = True  # an episode begins inside of an unroll
    memory = jnp.asarray(unrolls.extras["memory"][:, 0], jnp.float32)
    acted = []
    for t in range(T):
        now = TimeStep(
            jnp.asarray(unrolls.observation[:, t]),
            jnp.asarray(unrolls.reward[:, t]),
            jnp.ones(B),
            jnp.asarray(unrolls.first[:, t]),
            jnp.zeros(B, bool),
            no_masks(B),
        )
        seen, memory = embedding.act(torso, embedding.init_statistics(), now, memory)
        memory = embedding.remember(memory, jnp.asarray(unrolls.action[:, t]))
        acted.append(seen)
    learned = embedding.learn(torso, embedding.init_statistics(), unrolls)
    np.testing.assert_allclose(learned, jnp.stack(acted, axis=1), rtol=1e-5, atol=1e-6)


def test_images_go_through_a_network_each_and_numbers_beside_them() -> None:
    embedding = _embedding(MIXED)
    torso = embedding.init(jax.random.key(0))
    unrolls = _unrolls(MIXED, 0)
    numbers = unrolls.observation[..., -12:].copy().view(np.float32).astype(np.float64)
    statistics = embedding.observe(embedding.init_statistics(), jnp.asarray(unrolls.observation))
    seen = np.asarray(embedding.learn(torso, statistics, unrolls))
    assert seen.shape == (B, T, 6 + 6 + 3)
    moments = numbers.reshape(-1, 3)
    np.testing.assert_allclose(seen[..., -3:], (numbers - moments.mean(0)) / moments.std(0), rtol=1e-4, atol=1e-5)
    for start, stop, changes in ((0, 432, slice(0, 6)), (432, 464, slice(6, 12))):
        other = unrolls.observation.copy()
        other[..., start:stop] = 255 - other[..., start:stop]
        changed = np.asarray(embedding.learn(torso, statistics, unrolls._replace(observation=other))) != seen
        assert changed[..., changes].any()
        changed[..., changes] = False
        assert not changed.any()


def test_a_new_episode_forgets() -> None:
    embedding = _embedding(memory_size=4, see_last_action=True, normalise_observations=False)
    torso = embedding.init(jax.random.key(0))
    unrolls = _unrolls(VECTOR, embedding.memory_length)
    unrolls.first[:, 3] = True
    learned = embedding.learn(torso, embedding.init_statistics(), unrolls)
    for field in ("observation", "reward", "action"):
        other = getattr(unrolls, field).copy()
        other[:, :3] += 1
        changed = embedding.learn(torso, embedding.init_statistics(), unrolls._replace(**{field: other}))
        np.testing.assert_array_equal(changed[:, 3:], learned[:, 3:])
        assert np.any(np.asarray(changed[:, :3] != learned[:, :3]))
    reward = unrolls.reward.copy()
    reward[:, 3] += 1  # what the last step of the old episode earned
    changed = embedding.learn(torso, embedding.init_statistics(), unrolls._replace(reward=reward))
    np.testing.assert_array_equal(changed, learned)


@pytest.mark.parametrize("torso", ["small", "resnet"])
def test_images_are_seen_whole(torso: Any) -> None:
    """Every pixel matters, also at the edges where patches do not fit."""
    network: Any = {"small": pixels.Patches, "resnet": pixels.ResNet}[torso](16)
    image = jnp.full((1, 14, 13, 3), 0.5)
    params = network.init(jax.random.key(0), image)
    params = jax.tree.map(lambda leaf: leaf + 0.05, params)  # no dead units
    gradient = jax.grad(lambda x: jnp.sum(apply(network, params, x)))(image)
    assert apply(network, params, image).shape == (1, 16)
    assert float(jnp.mean(gradient != 0)) == 1


def test_patches_in_numbers() -> None:
    image = jnp.arange(16.0).reshape(1, 4, 4, 1)
    np.testing.assert_array_equal(pixels._cut(image, 2)[0, 0, 1], [2, 3, 6, 7])
    assert pixels._cut(image, 3).shape == (1, 2, 2, 9)
    np.testing.assert_array_equal(pixels._cut(image, 3)[0, 1, 1], [15, 0, 0, 0, 0, 0, 0, 0, 0])


def _gradients(**settings: Any) -> Any:
    config = Config(agent="aql", **(SMALL | {"memory_size": 4, "num_critics": 1} | settings))
    agent: Any = agents.make(config, IMAGE)
    state = agent.init(jax.random.key(0))
    unrolls = _unrolls(IMAGE, 8)
    return state, jax.jit(agent.update)(state, jax.random.key(1), unrolls)[0]


def test_the_proposal_sends_no_gradient_into_the_torso() -> None:
    before, plain = _gradients()
    _, other = _gradients(entropy_weight=5.0, proposal_learning_rate=0.1)
    leaves = jax.tree.leaves(before.params.network.torso)
    assert len(leaves) > 6
    for was, is_now, with_other in zip(
        leaves, jax.tree.leaves(plain.params.network.torso), jax.tree.leaves(other.params.network.torso), strict=True
    ):
        assert np.any(np.asarray(was != is_now))  # Q's loss does
        np.testing.assert_array_equal(is_now, with_other)
    pairs = zip(jax.tree.leaves(plain.params.search), jax.tree.leaves(other.params.search), strict=True)
    assert any(np.any(np.asarray(one != two)) for one, two in pairs)


@pytest.mark.parametrize("agent", ["d3pg", "impala"])
def test_other_agents_learn_to_see_and_remember(agent: str) -> None:
    env = EnvSpec((12, 12, 3), ActionSpace((Interval(-1, 1),)), np.dtype(np.uint8))
    config = Config(agent=agent, **(SMALL | {"memory_size": 4, "see_last_action": True, "num_critics": 1}))
    made: Any = agents.make(config, env)
    state = made.init(jax.random.key(0))
    unrolls = _unrolls(IMAGE, 9)
    length = made._embedding.memory_length
    extras = {"memory": unrolls.extras["memory"][..., :length], "log_prob": np.zeros((B, T), np.float32)}
    action = unrolls.action[..., 1:]
    after, metrics = jax.jit(made.update)(state, jax.random.key(1), unrolls._replace(action=action, extras=extras))
    assert all(np.isfinite(value) for value in metrics.values())
    pairs = zip(jax.tree.leaves(state.params.torso), jax.tree.leaves(after.params.torso), strict=True)
    assert all(np.any(np.asarray(a != b)) for a, b in pairs)


# Critics that predict: from the numbers of every kind of observation.


@pytest.mark.parametrize(
    ("env", "predictions"), [(VECTOR, 4), (IMAGE, 1), (MIXED, 4)], ids=["vector", "image", "mixed"]
)
def test_the_numbers_seen_and_the_reward_are_predicted(env: EnvSpec, predictions: int) -> None:
    config = Config(prediction_weight=0.3, memory_size=4, **SMALL)
    agent: Any = agents.make(config, env)
    assert agent._critic.num_predictions == predictions
    state = jax.jit(agent.init)(jax.random.key(0))
    unrolls = _unrolls(env, agent._embedding.memory_length)
    unrolls.first[1, 3] = True
    state, metrics = jax.jit(agent.update)(state, jax.random.key(1), unrolls)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    assert 0 < metrics["prediction_error"] < 100


def _deviations(unrolls: Unroll) -> np.ndarray:
    """The numbers of a vector in units of their deviation in this batch, where statistics begin with it."""
    return np.asarray((unrolls.observation - unrolls.observation.mean((0, 1))) / unrolls.observation.std((0, 1)))


@pytest.mark.parametrize("agent_name", ["aql", "d3pg"])
def test_the_gradient_is_that_of_td_and_a_share_of_the_predictions(agent_name: str) -> None:
    space = ActionSpace((Interval(-1, 1), Interval(-1, 1)))
    agent: Any = agents.make(
        Config(agent=agent_name, prediction_weight=0.3, num_critics=2, **SMALL), EnvSpec((3,), space)
    )
    unrolls = _unrolls(VECTOR, 0)
    unrolls.first[1, 3] = True
    statistics = agent._embedding.observe(agent._embedding.init_statistics(), unrolls.observation)
    embedding = agent._embedding.learn({}, statistics, unrolls)
    np.testing.assert_allclose(embedding, _deviations(unrolls), rtol=1e-4)
    critics = agent._init_critics(jax.random.key(0), embedding[:1, 0])
    targets = jnp.arange(B * (T - 1), dtype=jnp.float32).reshape(B, T - 1)
    happened = np.concatenate([np.diff(_deviations(unrolls), axis=1), unrolls.reward[:, 1:, None]], axis=-1)
    real = np.array([[1, 1, 1, 1], [1, 1, 0, 1]])

    def losses(critics: Any, embedding: jax.Array) -> jax.Array:
        """The two losses, critic after critic."""
        td_loss = error = jnp.zeros(())
        for critic in critics:
            half = agent._critic.apply(critic, embedding[:, :-1], method="state")
            outputs = agent._critic.apply(critic, half, jnp.asarray(unrolls.action[:, :-1]), method="outputs")
            td_loss += jnp.sum(real * (outputs[..., 0] - targets) ** 2) / 7 / 2
            error += jnp.sum(real[..., None] * (outputs[..., 1:] - happened) ** 2) / 7 / 2 / 2
        return jnp.stack([td_loss, error])

    td_loss, error = losses(critics, embedding)
    jacobian = jax.jacobian(losses, argnums=(0, 1))(critics, embedding)
    expected = jax.tree.map(lambda leaf: leaf[0] + 0.3 * td_loss / error * leaf[1], jacobian)
    gradients, metrics = agent._critic_gradients(critics, embedding, statistics, unrolls, targets)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), gradients, expected)
    np.testing.assert_allclose(metrics["critic_loss"], td_loss, rtol=1e-4)  # as it is without predictions
