"""The two action sets of the levels: seven sub-actions, and eleven composite actions made of them."""

import gymnasium
import numpy as np

from aql.errors import UserError, unknown

# A sub-action is the index of one of these: degrees a tic (right and up are positive), or which buttons are held.
TURN = (-6.0, -2.0, -0.5, 0.0, 0.5, 2.0, 6.0)
LOOK = (-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 3.0)
STRAFE = ((1.0, 0.0), (0.0, 0.0), (0.0, 1.0))  # left, right
MOVE = ((1.0, 0.0), (0.0, 0.0), (0.0, 1.0))  # backward, forward
SIZES = (len(TURN), len(LOOK), len(STRAFE), len(MOVE), 2, 2, 2)  # the last three: fire, jump, crouch

#                turn look strafe move fire jump crouch
CURATED = (
    *((3, 3, 1, 1, 0, 0, 0),),  # nothing
    *((3, 3, 1, 2, 0, 0, 0), (3, 3, 1, 0, 0, 0, 0)),  # forward, backward
    *((3, 3, 0, 1, 0, 0, 0), (3, 3, 2, 1, 0, 0, 0)),  # strafe left, right
    *((1, 3, 1, 1, 0, 0, 0), (5, 3, 1, 1, 0, 0, 0)),  # look left, right
    *((0, 3, 1, 1, 0, 0, 0), (6, 3, 1, 1, 0, 0, 0)),  # look left, right, fast
    *((1, 3, 1, 2, 0, 0, 0), (5, 3, 1, 2, 0, 0, 0)),  # forward and look left, right
)
NAMES = {"full": ("turn", "look", "strafe", "move", "fire", "jump", "crouch"), "curated": ("action",)}
ACTION_SETS = tuple(NAMES)


def space(action_set: str) -> gymnasium.Space:
    """The seven sub-actions (`full`), or the composite actions (`curated`)."""
    if not isinstance(action_set, str):
        raise UserError(f"action_set is {action_set!r}: expected {' or '.join(ACTION_SETS)}")
    if action_set not in ACTION_SETS:
        raise unknown("action_set", action_set, ACTION_SETS, f"expected {' or '.join(ACTION_SETS)}")
    if action_set == "curated":
        return gymnasium.spaces.Discrete(len(CURATED))
    return gymnasium.spaces.MultiDiscrete(list(SIZES))


def buttons(action: np.ndarray | int) -> list[float]:
    """What an action of either set means to the engine: a value for each of its `BUTTONS`."""
    chosen = np.asarray(action).tolist()
    turn, look, strafe, move, *held = CURATED[chosen] if isinstance(chosen, int) else chosen
    return [TURN[turn], LOOK[look], *STRAFE[strafe], *MOVE[move], *(float(on) for on in held)]
