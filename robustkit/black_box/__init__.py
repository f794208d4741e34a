"""Classifiers that are no PyTorch module: Python functions, ONNX files, and servers."""

from .model import BlackBox as BlackBox
from .onnx_file import OnnxModel as OnnxModel
