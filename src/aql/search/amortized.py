"""AQL: the best of N actions from a learned proposal and M uniform ones."""

import dataclasses

import jax
import jax.numpy as jnp

from aql import losses
from aql.actions import ActionSpace
from aql.networks import apply
from aql.networks.proposals import Conditionals, Proposal
from aql.search.base import Found, Metrics, Params, Score, best_of


@dataclasses.dataclass(frozen=True)
class Amortized:
    """The paper's search: a*(s) = argmax over {N proposal samples} and {M uniform samples} of Q(s, a)."""

    space: ActionSpace
    proposal: Proposal
    num_proposal: int
    num_uniform: int
    entropy_weight: float
    uniform_share: float = 1.0

    def init(self, key: jax.Array, embedding: jax.Array) -> Params:
        """The proposal's parameters."""
        no_action = jnp.zeros((*embedding.shape[:-1], self.space.dimensions))
        return self.proposal.init(key, embedding, no_action, method="likelihood")

    def __call__(
        self,
        params: Params,
        key: jax.Array,
        embedding: jax.Array,
        score: Score,
        known: jax.Array | None = None,
        allowed: jax.Array | None = None,
    ) -> Found:
        """See `Search`; the proposal's samples come first among the candidates."""
        proposal_key, uniform_key, share_key = jax.random.split(key, 3)
        proposed = apply(self.proposal, params, embedding, proposal_key, self.num_proposal, allowed, method="sample")
        uniform = self.space.sample(uniform_key, (embedding.shape[0], self.num_uniform), allowed)
        if self.uniform_share < 1:
            drawn = jax.random.uniform(share_key, uniform.shape) < self.uniform_share
            uniform = jnp.where(drawn, uniform, proposed[:, jnp.arange(self.num_uniform) % self.num_proposal])
        return best_of(jnp.concatenate([proposed, uniform], axis=1), score, known)

    def from_proposal(self, found: Found) -> jax.Array:
        """[B] whether a* came from the proposal: rarely while it knows nothing, mostly once it does."""
        return found.place < self.num_proposal

    def conditionals(
        self, params: Params, embedding: jax.Array, action: jax.Array, allowed: jax.Array | None = None
    ) -> Conditionals | None:
        """See `Search`."""
        return apply(self.proposal, params, embedding, action, allowed, method="conditionals")

    def loss(
        self, params: Params, embedding: jax.Array, best_action: jax.Array, allowed: jax.Array | None = None
    ) -> tuple[jax.Array, Metrics]:
        """-log mu(a* | s) - weight * H(mu(. | s))."""
        log_prob, entropy = apply(self.proposal, params, embedding, best_action, allowed, method="likelihood")
        loss = losses.proposal_loss(log_prob, entropy, self.entropy_weight)
        return loss, {
            "proposal_loss": loss,
            "proposal_log_prob": jnp.mean(log_prob),
            "proposal_entropy": jnp.mean(entropy),
        }
