"""The machine and its user: devices, versions, files and the display of progress."""

import random

_before = random.getstate()
import rich.style  # noqa: E402, F401  it draws a random number when it is first imported

random.setstate(_before)
