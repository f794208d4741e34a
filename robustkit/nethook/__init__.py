"""Hooks that never fail silently: record and change activations and gradients inside a network, then restore it.

All are context managers. They install and remove their own hooks only, all of them or none, and a chosen layer that
never runs is an error; `soft_kinks` needs no hook and no layer. Pages with examples: docs/hooks.
"""

from robustkit.nethook.attention import expose_attention as expose_attention
from robustkit.nethook.bpda import bpda as bpda
from robustkit.nethook.call import Call as Call
from robustkit.nethook.edits import clamp_grad as clamp_grad
from robustkit.nethook.edits import edit_grad as edit_grad
from robustkit.nethook.edits import edit_output as edit_output
from robustkit.nethook.edits import scale_grad as scale_grad
from robustkit.nethook.errors import CompiledModelError as CompiledModelError
from robustkit.nethook.errors import LayerNotFoundError as LayerNotFoundError
from robustkit.nethook.errors import ParameterNotFoundError as ParameterNotFoundError
from robustkit.nethook.errors import ReentrantCheckpointError as ReentrantCheckpointError
from robustkit.nethook.errors import ScriptedModuleError as ScriptedModuleError
from robustkit.nethook.errors import ShapeMismatchError as ShapeMismatchError
from robustkit.nethook.errors import StaleActivationError as StaleActivationError
from robustkit.nethook.errors import UnfiredLayerError as UnfiredLayerError
from robustkit.nethook.leftovers import HookInfo as HookInfo
from robustkit.nethook.leftovers import leftover_hooks as leftover_hooks
from robustkit.nethook.names import Layers as Layers
from robustkit.nethook.names import get_module as get_module
from robustkit.nethook.names import get_parameter as get_parameter
from robustkit.nethook.names import select as select
from robustkit.nethook.names import unwrap as unwrap
from robustkit.nethook.parameters import zero_grad_of as zero_grad_of
from robustkit.nethook.replace import replaced as replaced
from robustkit.nethook.restore import restored as restored
from robustkit.nethook.soft_kinks import soft_kinks as soft_kinks
from robustkit.nethook.straight_through import straight_through as straight_through
from robustkit.nethook.trace import Layer as Layer
from robustkit.nethook.trace import Trace as Trace
