"""Classifiers that are no PyTorch module: Python functions, ONNX files, and servers."""

from .http_model import HttpModel as HttpModel
from .model import BlackBox as BlackBox
from .onnx_file import OnnxModel as OnnxModel
from .remote_access import RemoteAccess as RemoteAccess
