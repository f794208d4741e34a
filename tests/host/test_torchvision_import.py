import subprocess
import sys

import pytest

BEGIN = "import sys; from robustkit.host.torchvision_import import torchvision; "


def printed(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


SUPPORTED = "m = sys.modules['torchvision.ops.roi_align']; print(m.is_compile_supported('cpu'))"


NOT_IMPORTED = f"torchvision().models.resnet18(); print('torch._dynamo' in sys.modules); {SUPPORTED}; "
STAND_IN = (
    "import robustkit.host.torchvision_import as own; "
    "names = own._PACKAGE, own._MODULE; sys.modules.update({name: own._StandIn(name) for name in names}); "
    "ASKED; "
    "print(type(sys.modules[own._PACKAGE]).__name__, callable(sys.modules[own._PACKAGE].disable))"
)


def test_the_compiler_is_imported_only_where_more_is_asked_of_it_and_then_takes_the_place_of_its_stand_in():
    # One process for both, because each imports torch.
    code = NOT_IMPORTED + STAND_IN.replace("ASKED", "from torch._dynamo.utils import counters")

    assert printed(code).split() == ["False", "True", "module", "True"]


@pytest.mark.slow
def test_a_compiler_that_is_there_already_stays():
    assert printed(f"import torch._dynamo; torchvision(); {SUPPORTED}") == "True"


@pytest.mark.slow
def test_a_stand_in_becomes_the_compiler_when_a_module_of_it_is_imported():
    assert printed(STAND_IN.replace("ASKED", "import torch._dynamo.config")) == "module True"
