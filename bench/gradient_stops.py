"""Which image classifiers of torchvision and timm have operations in their forward that pass no gradient on?

    python bench/gradient_stops.py [--timm]

Networks are built without memory (torch's device "meta"), or on the CPU where that fails. Of timm, the first network of
each family.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator

import torch
import torchvision
from torch import Tensor, nn

from robustkit.classifier.gradient_stops import gradient_stops

Build = Callable[[], tuple[nn.Module, int]]


def of_torchvision() -> Iterator[tuple[str, Build]]:
    """Each architecture of torchvision, with the size of its images."""
    for name in torchvision.models.list_models(module=torchvision.models):

        def build(name: str = name) -> tuple[nn.Module, int]:
            size = 512 if name == "vit_h_14" else 299 if name == "inception_v3" else 224
            model = torchvision.models.get_model(name, weights=None)
            return model, getattr(model, "image_size", size)

        yield name, build


def of_timm() -> Iterator[tuple[str, Build]]:
    """The first network of each family of timm."""
    import timm

    families = set()
    for name in timm.list_models():
        family = name.split("_")[0].rstrip("0123456789")
        if family in families:
            continue
        families.add(family)

        def build(name: str = name) -> tuple[nn.Module, int]:
            model = timm.create_model(name)
            return model, model.default_cfg["input_size"][-1]

        yield name, build


def stops_of(build: Build) -> list[str] | None:
    """The operations of a network; None if it does not run."""
    for device in ("meta", "cpu"):
        try:
            with torch.device(device):
                model, size = build()
                images = torch.rand(1, 3, size, size)
            failed: list[Exception] = []

            def forward(points: Tensor, model: nn.Module = model, failed: list[Exception] = failed) -> None:
                try:
                    model(points)
                except Exception as error:
                    failed.append(error)

            stops = gradient_stops(forward, model.eval(), images)
        except Exception:
            continue
        if not failed:
            return [stop.text for stop in stops]
    return None


def main() -> None:
    """Print a line for each network with such operations, and how many have none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--timm", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    none, failed = 0, []
    for name, build in of_timm() if given.timm else of_torchvision():
        found = stops_of(build)
        if found is None:
            failed.append(name)
        elif found:
            print(f"{name}: {', '.join(found)}", flush=True)
        else:
            none += 1
    print(f"{none} networks without such operations; {len(failed)} not run {failed}")


if __name__ == "__main__":
    main()
