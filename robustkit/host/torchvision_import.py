"""torchvision, imported without torch's compiler.

torchvision imports the whole compiler for one function, which only its RoI layers call: 1.7 s of the 2.1 s that its
import takes (torchvision 0.29). While it is imported here, stand-ins take the place of the compiler's modules. They
have that one function, and become the true modules when anything else is asked of them.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_PACKAGE, _MODULE = "torch._dynamo", "torch._dynamo.utils"


def torchvision() -> Any:
    """The package."""
    if "torchvision" in sys.modules or _PACKAGE in sys.modules:
        return importlib.import_module("torchvision")
    package, module = _StandIn(_PACKAGE), _StandIn(_MODULE)
    vars(module)["is_compile_supported"] = _is_compile_supported
    sys.modules.update({_PACKAGE: package, _MODULE: module})
    try:
        return importlib.import_module("torchvision")
    finally:
        _remove()


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        # Python looks for some such names on every module; of these only a package's path leads to other modules.
        if name.startswith("__") and (self.__name__, name) != (_PACKAGE, "__path__"):
            raise AttributeError(name)
        _remove()
        return getattr(importlib.import_module(self.__name__), name)


def _remove() -> None:
    for name in (_PACKAGE, _MODULE):
        if isinstance(sys.modules.get(name), _StandIn):
            del sys.modules[name]


def _is_compile_supported(device_type: Any) -> Any:
    return importlib.import_module(_MODULE).is_compile_supported(device_type)
