import subprocess
import sys

import pytest

BEGIN = "import sys; from robustkit.host.torchvision_import import torchvision; "


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


SUPPORTED = "m = sys.modules['torchvision.ops.roi_align']; print(m.is_compile_supported('cpu'))"


def test_the_compiler_is_not_imported_nothing_stands_in_its_place_and_the_function_is_that_of_the_compiler():
    code = f"torchvision().models.resnet18(); print('torch._dynamo' in sys.modules); {SUPPORTED}"

    assert printed(code).split() == ["False", "True"]


@pytest.mark.slow
def test_a_compiler_that_is_there_already_stays():
    assert printed(f"import torch._dynamo; torchvision(); {SUPPORTED}") == "True"


@pytest.mark.parametrize(
    "asked",
    [
        "from torch._dynamo.utils import counters",
        pytest.param("import torch._dynamo.config", marks=pytest.mark.slow),
    ],
)
def test_a_stand_in_becomes_the_compiler_when_more_is_asked_of_it(asked):
    code = (
        "import robustkit.host.torchvision_import as own; "
        "names = own._PACKAGE, own._MODULE; sys.modules.update({name: own._StandIn(name) for name in names}); "
        f"{asked}; "
        "print(type(sys.modules[own._PACKAGE]).__name__, callable(sys.modules[own._PACKAGE].disable))"
    )

    assert printed(code) == "module True"
