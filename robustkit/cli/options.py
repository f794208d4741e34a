"""Options that several commands share. Each function here is a decorator of a command, or returns one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from robustkit import limits
from robustkit.errors import UserError

from .config import read_config
from .option_types import CountOr, NumberList, OpenShare, OutPath

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

MODELS = (
    "torchvision name, timm:NAME, hf:ID, clip:ID, robustbench:DATA/THREAT/NAME, file.py:NAME, "
    "'file.py:NAME(width=8)', file.onnx, file.pt, file.pt2, https://..., or model.safetensors of finetune"
)
DATASETS = (
    "a folder with one sub-folder of image files per class, file.npz, file.safetensors, file.tar, a folder of "
    "save_to_disk, or file.py:NAME"
)
WEIGHTS = "Checkpoint file, or published weights by name, such as default"
DEFAULT_THREAT = "[default: by data set, see robustkit list datasets]"
RADIUS = "Radius: 8/255 or 0.5 for pixels in [0, 1]"
OTHER_RADII = (
    "a number of values for L0, pixels for patch, frame, translation and flow, degrees for rotation and spatial, a "
    "share of the range for color and recolor, or minimum for the nearest adversarial example"
)

config_option = click.option(
    "--config", type=click.Path(path_type=Path), callback=read_config, is_eager=True, expose_value=False,
    help="TOML file with these options; the command line takes precedence.",
)  # fmt: skip
val_share_option = click.option(
    "--val-share", type=OpenShare(0, 0.5), metavar="SHARE",
    help="Share of the training images to hold out, for data without a validation split.",
)  # fmt: skip
batch_size_option = click.option(
    "-b", "--batch-size", type=CountOr("auto"), default="auto", show_default=True, help="Images in a batch."
)
growing_batch_size_option = click.option(
    "-b", "--batch-size", type=CountOr("auto", "max"), default="auto", show_default=True,
    help="Images in a batch; max: as many as a GPU has memory for.",
)  # fmt: skip
shard_option = click.option(
    "--shard", metavar="I/N|auto",
    help="Attack only every N-th image, from the I-th on, in a run folder of its own below --out; join them with "
         "robustkit merge. auto: read I/N from a Slurm array or torchrun.",
)  # fmt: skip
device_option = click.option(
    "--device", default="auto", show_default=True,
    help="auto, cpu, cuda or cuda:1; auto takes a GPU if there is one.",
)  # fmt: skip
seed_option = click.option(
    "--seed", type=click.IntRange(min=0, max=limits.SEED), default=0, show_default=True,
    help="Seed of all random numbers.",
)  # fmt: skip
model_option = click.option("-m", "--model", metavar="NAME", help=f"Required. {MODELS[0].upper()}{MODELS[1:]}.")
mask_option = click.option(
    "--mask", metavar="FILE|FOLDER|patch:ROW,COLUMN,HEIGHT,WIDTH",
    help="Only these pixels may change: those that are white in an image, or not 0 in an .npy file. "
         "Or one mask per image: an .npy file [N, H, W], or a folder of images.",
)  # fmt: skip
quiet_option = click.option("-q", "--quiet", is_flag=True, help="No progress.")


def samples_option(default: int, images: str = "images") -> Decorator:
    """How many images are used."""
    return click.option("-n", "--samples", type=CountOr("all"), default=default, show_default=True,
                        help=f"Number of {images}, taken in a fixed shuffled order.")  # fmt: skip


def workers_options(command: Command) -> Command:
    """The processes that attack the images, and where they run."""
    return _all(
        click.option("--workers", type=click.IntRange(1, 1024), metavar="N",
                     help="Attack in N processes of one thread each. [default: in this process alone]"),
        click.option("--backend", type=click.Choice(["local", "ray"]), default="local", show_default=True,
                     help="Where workers run: on this machine, or on the nodes of a Ray cluster, by default one for "
                          "each processor or GPU."),
        click.option("--ray-address", metavar="HOST:PORT|auto",
                     help="The Ray cluster; this machine must be one of its nodes. [default: RAY_ADDRESS, or a cluster "
                          "of this machine for this run]"),
    )(command)  # fmt: skip


def run_options(out: Path, *, seed: bool = True) -> Decorator:
    """Device, seed and output folder of a run, and whether it shows its progress."""
    out_option = click.option("-o", "--out", type=OutPath(), default=out, show_default=True,
                              help="Folder.")  # fmt: skip
    return _all(device_option, *([seed_option] if seed else []), out_option, quiet_option)


def threat_options(norms: str, radii: str = RADIUS) -> Decorator:
    """One threat model."""
    return _all(
        click.option("--norm", help=f"{norms}. {DEFAULT_THREAT}"),
        click.option("--eps", metavar="EPS", help=f"{radii}. {DEFAULT_THREAT}"),
    )


def input_options(command: Command) -> Command:
    """The configuration file, one model and its data."""
    return _all(
        config_option,
        model_option,
        click.option("--weights", metavar="FILE|NAME", help=f"{WEIGHTS}."),
        weights_options,
        data_options,
    )(command)  # fmt: skip


def models_options(command: Command) -> Command:
    """Several models with their weights and names."""
    return _all(
        click.option("-m", "--model", "models", multiple=True, metavar="NAME",
                     help=f"Required. {MODELS[0].upper()}{MODELS[1:]}. Repeatable."),
        click.option("--weights", multiple=True, metavar="FILE|NAME", help=f"{WEIGHTS}; one per model."),
        click.option("--name", "names", multiple=True, metavar="TEXT",
                     help="Name of the model in reports; one per model. [default: from model and checkpoint]"),
    )(command)  # fmt: skip


def weights_options(command: Command) -> Command:
    """Classes and normalisation of models given by name, and whether they are trained here."""
    return _all(
        click.option(
            "--num-classes",
            type=click.IntRange(min=1),
            help="Number of classes of the checkpoint. [default: that of the data]",
        ),
        click.option(
            "--mean",
            type=NumberList(),
            help="Means of the normalisation inside the model, one per channel, for pixels in [0, 1].",
        ),
        click.option("--std", type=NumberList(), help="Standard deviations, likewise; with --mean."),
        click.option("--train", is_flag=True, help="Train a model here once and cache it (automatic on digits)."),
        click.option("--retrain", is_flag=True, help="Train again even if the model is cached."),
        click.option(
            "--random-init", is_flag=True, help="Leave the weights of an architecture random, to try a command."
        ),
    )(command)


gray_option = click.option("--gray", is_flag=True, help="Read image files with one channel.")


def data_options(command: Command) -> Command:
    """The data set."""
    return _all(
        click.option("-d", "--dataset", default="digits", show_default=True, metavar="NAME|PATH",
                     help=f"See `robustkit list datasets`; or {DATASETS}."),
        click.option("--data-dir", type=click.Path(path_type=Path),
                     help="Folder with the files of published data; required for these, except digits."),
        click.option("--download", is_flag=True, help="Download these files into --data-dir first."),
        click.option("--split", default="test", show_default=True, help="Split of the data, such as train."),
        click.option("--image-size", type=click.IntRange(min=1),
                     help="Resize the short side of image files to this many pixels, and crop the centre."),
        gray_option,
    )(command)  # fmt: skip


def remedy_options(command: Command) -> Command:
    """How to attack models whose own gradients mislead."""
    return _all(
        click.option("--bpda", "bpda", multiple=True, metavar="LAYER[=FUNCTION]",
                     help="BPDA: replace a layer's gradient by that of identity, relu, sigmoid, tanh or "
                          "file.py:function; see `robustkit diagnose`. Repeatable."),
        click.option("--eot", type=click.IntRange(min=1), metavar="K",
                     help="Average each query over K draws of a randomized or smoothed model. [default: 20]"),
        click.option("--probabilities", is_flag=True, help="The models return probabilities, not logits."),
        click.option("--straight-through", is_flag=True,
                     help="Follow gradients through rounding, comparisons, detach, no_grad and lookups."),
    )(command)  # fmt: skip


rejects_option = click.option(
    "--rejects", is_flag=True,
    help="The models' last output means that they reject the image; a rejected example is no success.",
)  # fmt: skip

_SERVER = "a model on a server (https://...)"


def server_options(counted: str) -> Decorator:
    """How models on a server are queried; `counted`: of what --max-queries is the limit."""
    return _all(
        click.option("--max-queries", type=click.IntRange(min=1), metavar="N",
                     help=f"Maximum number of requests to {_SERVER}, {counted}. [default: no limit]"),
        click.option("--rate", type=float, metavar="R",
                     help=f"Maximum number of requests per second to {_SERVER}. [default: no limit]"),
        click.option("--parallel", type=click.IntRange(min=1), metavar="N",
                     help=f"Number of requests to {_SERVER} at the same time. [default: 1]"),
        click.option("--token-variable", metavar="NAME",
                     help="Environment variable with the token for a server (https://...). [default: ROBUSTKIT_TOKEN]"),
        click.option("--timeout", type=float, metavar="S",
                     help=f"Seconds for one request to {_SERVER}. [default: 30]"),
    )  # fmt: skip


def smoothing_options(command: Command) -> Command:
    """Randomized smoothing, with a certified accuracy in addition to the attacks."""
    return _all(
        click.option("--smooth", type=float, metavar="SIGMA",
                     help="Randomized smoothing: attack and certify the class predicted most often under Gaussian "
                          "noise with this standard deviation, for pixels in [0, 1]."),
        click.option("--smooth-draws", type=click.IntRange(min=1), metavar="N",
                     help="Number of noisy copies of an image for its certificate. [default: 10000]"),
        click.option("--smooth-alpha", type=float, metavar="A",
                     help="Largest probability that a certificate is wrong. [default: 0.001]"),
    )(command)  # fmt: skip


def corruption_options(default: tuple[str, ...]) -> Decorator:
    """Corrupted images, and the baseline of their errors."""
    return _all(
        click.option("--corruptions", multiple=True, default=default, show_default=" ".join(default) or False,
                     metavar="NAME|FOLDER",
                     help="Also judge corrupted images: generated (all of them) or names such as fog; or published "
                          "ones, by the word published or their folder, such as CIFAR-10-C. Repeatable."),
        click.option("--severity", "severities", type=click.IntRange(1, 5), multiple=True, metavar="N",
                     help="Severity of generated corruptions. Repeatable. [default: 1 to 5]"),
        click.option("--corruption-baseline", metavar="MODEL|FILE",
                     help="Baseline of mCE: a model of the run, alexnet, or a .csv file of errors."),
    )  # fmt: skip


def _all(*options: Decorator) -> Decorator:
    """One decorator for several options, in the order in which `--help` shows them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def data_of(options: dict[str, Any]) -> Any:
    """The data set that the options name."""
    from robustkit.data import load_dataset

    return load_dataset(
        options["dataset"], options["split"], data_dir=options["data_dir"], download=options["download"],
        image_size=options["image_size"], gray=options["gray"],
    )  # fmt: skip


def require_model(options: dict[str, Any]) -> None:
    """Refuse a command without a model.

    Raises:
        UserError: there is none.
    """
    if not options["model"]:
        raise UserError("No model is given; add --model NAME, for example --model resnet18.")
