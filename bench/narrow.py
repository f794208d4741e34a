r"""ResNet-18 at an eighth of its width, for experiments that need many trainings.

    robustkit finetune --model bench/narrow.py:resnet18_w8 --eps 0.2
    robustkit ablate --model bench/narrow.py:resnet18_w8 --eps 0.2 --grid freeze=none,prefix:layer1 \
        --grid bn=batch,frozen

176,258 weights in place of 11,172,810; an adversarial epoch of digits takes under a CPU-second. Too narrow to say how
robust a network can be; made to compare choices under equal means.
"""

import sys

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock, ResNet

from robustkit import load_dataset
from robustkit.models import CleanRecipe, PixelModel
from robustkit.models.train_once import load_or_train

WIDTH = 8
RECIPE = CleanRecipe(epochs=16)  # 8 leave it half a point worse on validation images


class Narrow(ResNet):
    """torchvision's ResNet of basic blocks, with few channels and the stem for 8x8 images of one channel."""

    def __init__(self, width: int) -> None:
        super().__init__(BasicBlock, [2, 2, 2, 2], num_classes=10)
        self.inplanes = width
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity()  # type: ignore[assignment]
        self.layer1 = self._make_layer(BasicBlock, width, 2)
        self.layer2 = self._make_layer(BasicBlock, 2 * width, 2, stride=2)
        self.layer3 = self._make_layer(BasicBlock, 4 * width, 2, stride=2)
        self.layer4 = self._make_layer(BasicBlock, 8 * width, 2, stride=2)
        self.fc = nn.Linear(8 * width, 10)
        # ResNet's own start, for the layers that are new.
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def resnet18_w8() -> nn.Module:
    """The narrow network, trained on digits' training split: once, then from robustkit's cache."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(RECIPE.seed)
        model = PixelModel(Narrow(WIDTH), name="resnet18_w8", source="", num_classes=10)
    load_or_train(model, load_dataset("digits", "train"), RECIPE, retrain=False, report=_say)
    return model.network.eval()


def _say(text: str, share: float | None) -> None:
    if share is None:
        print(text, file=sys.stderr)
