"""What tests that compile share."""

import pytest

# torch's compiler warns of its own deprecated functions, of Python 3.13.0, of empty graphs, and that TF32 is off, as it
# is on purpose.
compiles = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script_method. is deprecated:DeprecationWarning",
    "ignore:Guards may run slower on Python 3.13.0:RuntimeWarning",
    "ignore:TensorFloat32 tensor cores:UserWarning",
    "ignore:The CUDA Graph is empty:UserWarning",
)
