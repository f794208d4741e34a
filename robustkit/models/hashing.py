"""A hash of tensors by name, type, shape and value: what tells two sets of weights apart."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def hash_tensors(tensors: Mapping[str, Tensor], prefix: str = "", separator: str = "\n") -> "hashlib._Hash":
    """A SHA-256 of tensors in the order of their names; the caller may add to it.

    Args:
        tensors: by name, such as a state dict.
        prefix: is hashed before them.
        separator: between a tensor's description and its values. Runs that are already on disk used different ones.
    """
    digest = hashlib.sha256(prefix.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {list(value.shape)}{separator}".encode())
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest
