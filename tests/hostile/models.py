"""Models of the user that raise, end the process, or answer what no classifier answers."""

import re
from pathlib import Path

HEAD = """
import os, sys, threading, warnings
import numpy as np
import torch
from torch import nn
from tests import networks, small

calls = 0

class Odd(Exception):
    def __str__(self):
        raise RuntimeError("no text")

class Hostile(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = small.linear()

    def forward(self, x):
        global calls
        calls += 1
        logits = self.inner(x)
        return {expression}

def do(code):
    exec(code, globals())

def raising(error):
    raise error

def late(error, after={late}):
    if calls > after:
        raise error
    return 0

class Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        {backward}

def factory():
    {factory}
"""

ERRORS = {
    "ValueError": "ValueError('no')",
    "KeyError": "KeyError('k')",
    "TypeError": "TypeError()",
    "StopIteration": "StopIteration()",
    "StopAsyncIteration": "StopAsyncIteration()",
    "GeneratorExit": "GeneratorExit()",
    "MemoryError": "MemoryError()",
    "RecursionError": "RecursionError('deep')",
    "OSError": "OSError(5, 'Input/output error')",
    "OSError of a file": "FileNotFoundError(2, 'No such file or directory', 'table.bin')",
    "BrokenPipeError": "BrokenPipeError()",
    "UnicodeDecodeError": "UnicodeDecodeError('utf-8', b'x', 0, 1, 'bad')",
    "SystemExit 0": "SystemExit(0)",
    "SystemExit text": "SystemExit('bye')",
    "BaseException": "BaseException('base')",
    "AssertionError": "AssertionError()",
    "NotImplementedError": "NotImplementedError()",
    "torch.OutOfMemoryError": "torch.OutOfMemoryError('CUDA out of memory')",
    "an error without text": "Odd()",
    "an error of three lines": "RuntimeError('one\\ntwo\\nthree')",
    "an error with escape codes": "RuntimeError('\\x1b[2J\\x07 \\u202e')",
    "an error of a million letters": "RuntimeError('x' * 1000000)",
    "BrokenProcess": "ChildProcessError(10, 'No child')",
    "Ctrl-C's error group": "ExceptionGroup('several', [ValueError(1), TypeError(2)])",
}
OUTPUTS = {
    "nothing": "None",
    "a number": "3",
    "a text": "'logits'",
    "an empty list": "[]",
    "an empty dict": "{}",
    "a list of itself": "(lambda found: (found.append(found), found)[1])([])",
    "a numpy array": "logits.detach().numpy()",
    "no rows": "logits[:0]",
    "one row fewer": "logits[:-1]",
    "one row more": "torch.cat([logits, logits[:1]])",
    "one row": "logits[:1]",
    "no classes": "logits[:, :0]",
    "one number": "logits.sum()",
    "three axes": "logits[:, None]",
    "four axes": "logits[:, :, None, None]",
    "sparse": "logits.to_sparse()",
    "compressed rows": "logits.to_sparse_csr()",
    "meta": "logits.to('meta')",
    "quantised": "torch.quantize_per_tensor(logits.detach(), 0.1, 0, torch.quint8)",
    "complex": "logits.to(torch.complex64)",
    "truth values": "logits > 0",
    "whole numbers": "logits.detach().long()",
    "float64": "logits.double()",
    "float16": "logits.half()",
    "float8": "logits.detach().to(torch.float8_e4m3fn)",
    "nested": "torch.nested.nested_tensor([row for row in logits.detach()])",
    "NaN": "logits * float('nan')",
    "infinite": "logits / 0",
    "a parameter": "self.inner[1].weight",
    "the input": "x",
    "twenty thousand classes": "logits[:, :1].expand(-1, 20000)",
    "one class": "logits[:, :1]",
    "a module": "self",
    "a strange dict": "{('a', 1): logits, None: 2}",
    "detached": "logits.detach()",
    "in inference mode": "torch.inference_mode()(lambda: logits * 1)()",
    "a named tensor": "logits.rename('N', 'K')",
    "other rows at each call": "logits[: 1 + calls % len(logits)]",
}
FACTORIES = {
    "exits": "sys.exit(0)",
    "exits with a text": "sys.exit('bye')",
    "calls quit": "quit()",
    "raises an odd error": "raise Odd",
    "returns nothing": "pass",
    "returns a class": "return nn.Linear",
    "returns itself": "return factory",
    "returns a list of modules": "return [small.linear()]",
    "calls itself": "return factory()",
    "prints escape codes": "return (sys.stderr.write(''), small.linear())[1]",
    "meta weights": "return small.linear().to('meta')",
    "lazy weights": "return nn.Sequential(nn.Flatten(), nn.LazyLinear(10))",
    "no weights": "return nn.Sequential(nn.Flatten(), nn.Softmax(1))",
    "NaN weights": "net = small.linear(); nn.init.constant_(net[1].weight, float('nan')); return net",
    "complex weights": "return small.linear().to(torch.complex64)",
    "whole-number weights": "return small.linear().requires_grad_(False).to(torch.int8)"
    " if False else small.linear().requires_grad_(False).half()",
    "float8 weights": "return small.linear().requires_grad_(False).to(torch.float8_e4m3fn)",
    "sparse weights": "net = small.linear(); net[1].weight = nn.Parameter(net[1].weight.detach().to_sparse());"
    " return net",
    "a quantised network": "return torch.ao.quantization.quantize_dynamic(small.linear(), {nn.Linear})",
    "a scripted network": "return torch.jit.script(small.linear())",
    "a compiled network": "return torch.compile(small.linear(), backend='eager')",
    "a network in a thread's hands": "net = small.linear(); net.lock = threading.Lock(); return net",
    "a name with escape codes": "net = small.linear(); net.name = '\\x1b[31m=1+1\\n'; return net",
    "a name with a surrogate": "net = small.linear(); net.name = '\\udcff'; return net",
    "a name that is a number": "net = small.linear(); net.name = 5; return net",
    "a network that cannot be in eval mode": "net = small.linear(); net.eval = lambda: raising(ValueError('no eval'));"
    " return net",
    "a network without modules": "net = small.linear(); net.modules = lambda: iter([]); return net",
    "a network with a bad state": "net = small.linear(); net.state_dict = lambda *a, **k: raising(KeyError('s'));"
    " return net",
    "a network that cannot move": "net = small.linear(); net._apply = lambda *a, **k: raising(OSError(5, 'no'));"
    " return net",
    "a network whose text fails": "net = small.linear(); type(net).__repr__ = lambda s: raising(Odd()); return net",
    "a network that contains itself": "net = small.linear(); net._modules['self'] = net; return net",
    "a network of a thousand layers": "return nn.Sequential(nn.Flatten(), *(nn.Identity() for _ in range(1000)),"
    " nn.Linear(64, 10))",
    "a warning of three lines": "warnings.warn('one\\ntwo\\nthree'); return small.linear()",
    "another current folder": "os.mkdir('sub'); os.chdir('sub'); os.rmdir('../sub'); return small.linear()",
    "a changed default type": "torch.set_default_dtype(torch.float64); return small.linear()",
    "a changed default device": "torch.set_default_device('meta');"
    " return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))",
    "inference tensors": "return torch.inference_mode()(small.linear)()",
    "hooks that raise": "net = small.linear(); net.register_forward_hook(lambda *a: raising(Odd())); return net",
    "hooks that change the rows": "net = small.linear(); net.register_forward_hook(lambda m, i, o: o[:1]); return net",
}  # fmt: skip
FILES = {
    "exits": "import sys; sys.exit(0)\n",
    "os error": "open('/nosuch')\n",
    "syntax": "def factory(:\n",
    "null bytes": "a = 1\0\n",
    "no encoding": "# -*- coding: nosuch -*-\n",
    "binary": "\udcff\udcfe\n",
    "imports itself": "import {stem}\nfrom {stem} import factory\n",
    "imports nothing there": "import nosuchmodule\n",
    "raises on attribute": "def __getattr__(name):\n    raise ValueError(name)\n",
    "no factory": "factory = 3\n",
    "a builtin": "factory = len\n",
    "print": "factory = print\n",
    "exit": "factory = exit\n",
    "dict": "factory = dict\n",
    "a module": "from tests import small\nfactory = small.linear()\n",
    "an empty file": "",
    "deep": "x = " + "(" * 500 + ")" * 500 + "\n",
    "removes itself from sys.modules": "import sys\ndel sys.modules[__name__]\n"
    "from tests import small\nfactory = small.linear\n",
    "empties sys.path": "import sys\nsys.path.clear()\nfrom tests import small\nfactory = small.linear\n",
    "a stop": "raise StopIteration\n",
    "a base error": "raise BaseException('x')\n",
    "keeps a surrogate": "name = '\\udcff'\nraise ValueError(name)\n",
}  # fmt: skip


def model(expression: str = "logits", factory: str = "return Hostile()", backward: str = "return grad", late: int = 3):
    """What writes the file hostile.py with such a model."""

    def prepare(folder: Path) -> None:
        text = HEAD
        for key, value in {"expression": expression, "factory": factory, "backward": backward, "late": late}.items():
            text = text.replace(f"{{{key}}}", str(value))
        (folder / "hostile.py").write_text(text)

    return prepare


def file(text: str, name: str = "hostile.py"):
    """What writes this text as a model file."""
    stem = re.sub(r"\.py$", "", name)
    return lambda folder: (folder / name).write_bytes(text.replace("{stem}", stem).encode(errors="surrogateescape"))
