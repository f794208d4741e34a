"""Settings with which an attack would do nothing, and look like evidence of robustness."""

import pytest

from robustkit.errors import UserError
from robustkit.primitives.registry import build

IDLE = [
    ("ddn:radius=0", "L2"), ("ddn:step_size=0", "L2"), ("cw:first_weight=0", "L2"), ("cw:step_size=0", "L2"),
    ("ead:first_weight=0", "L1"), ("ead:step_size=0", "L1"), ("sigma_zero:smoothing=0", "L0"),
    ("sigma_zero:step_size=0", "L0"), ("nes:spread=0", "Linf"), ("spsa:spread=0", "Linf"), ("simba:step_size=0", "L2"),
    ("bandits:spread=0", "Linf"), ("bandits:exploration=0", "Linf"), ("bandits:prior_step=0", "L2"),
    ("geoda:spread=0", "L2"), ("sign_opt:spread=0", "L2"), ("sign_opt:step_size=0", "L2"),
]  # fmt: skip


@pytest.mark.parametrize(("specification", "norm"), IDLE, ids=[text for text, _ in IDLE])
def test_a_setting_that_does_nothing_is_refused(specification, norm):
    with pytest.raises(UserError, match=f"{specification.partition(':')[2].partition('=')[0]} must be above 0"):
        build(specification, norm, "0.1" if norm != "L0" else "5")
