"""What a caller asks of an evaluation: one frozen value for Python, the command line and TOML files alike."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from torch import nn

from robustkit import limits
from robustkit.black_box import RemoteAccess
from robustkit.checks.check import LEVELS
from robustkit.checks.facts import Level
from robustkit.classifier.classifier import Classifier
from robustkit.classifier.smoothing import Smoothing
from robustkit.classifier.surrogate_gradients import SurrogateGradient
from robustkit.data.given import GivenData
from robustkit.data.tensors import Array
from robustkit.errors import UserError, unknown
from robustkit.evaluation.shard import Shard, shard_of
from robustkit.host.arguments import check_fields
from robustkit.host.progress import ProgressWatch, Silent, shown_progress
from robustkit.primitives.given_examples import GivenExamples
from robustkit.primitives.mask import Mask
from robustkit.primitives.protocol import Attack

Model = str | nn.Module | Classifier
GivenAttack = str | Attack | GivenExamples
Backend = Literal["local", "ray"]
Data = str | GivenData

_NOBODY = Silent()
MOST_WORKERS = 1024


@dataclass(frozen=True)
class Numerics:
    """How the search network is computed; verdicts are fp32 and unfolded, whatever is chosen here."""

    fold: bool = True
    channels_last: bool | None = None
    compile: bool = False
    cuda_graphs: bool = False
    bf16: bool = False
    tf32: bool = False


@dataclass(frozen=True, eq=False)
class EvaluationRequest:
    """Models, data, attacks, threat models, and how the evaluation is run.

    Args:
        models: names, modules that take pixels in [0, 1], or classifiers with bounds of their own.
        dataset: a name, a `Dataset`, images `[N, C, H, W]` in [0, 1] with labels `[N]`, a torch data set of images
            with labels, or a `DataLoader`, whose data set is taken in its own order.
        attacks: specifications such as "pgd:steps=40" or "mine.py:MyAttack", attack objects, or the ensembles
            "default" and "autoattack". Each attack is run on all correctly classified images; the members of an
            ensemble only on those that the members before them left. Adversarial examples that something else made
            are judged, too: a file "adv.npz", or what `load_examples` returns.
        norm: "Linf", "L2", "L1", "L0", "patch", "frame", or another threat such as "spatial"; by default
            those that are usual for the data set.
        eps: radii in units of pixels in [0, 1], "8/255" or "L2:0.5"; the side of a patch and the width of a frame in
            pixels; by default the usual ones.
        mask: the pixels that may change, in the ball of the norm: a `Mask`, an array `[H, W]`, a file of one, or
            "patch:ROW,COLUMN,HEIGHT,WIDTH"; or one for each image of the data, as an array `[N, H, W]`, a file of one,
            or a folder of pictures (`masks_of_data`); None for all pixels.
        samples: how many images, in a fixed shuffled order; None takes all.
        batch_size: images in flight; on a CPU it does not change a bit of the result. "max" takes more and more of them
            until a GPU's memory is full, and is "auto" on a CPU.
        device: "auto", "cpu", "cuda", ...
        seed: of all noise.
        out: run folder for evidence; the same request again goes on where it stopped. None keeps it in memory.
        weights: checkpoints or published weights of models given by name, one per model, as in `load_model`.
        names: what reports call the models, one each; by default after their names, classes and checkpoints.
        num_classes: of the checkpoint, likewise.
        mean: normalisation inside a model given by name.
        std: likewise.
        train: train a model given by name once if it has no weights for the data.
        retrain: train it again, whatever is cached.
        random_init: leave the weights of an architecture given by name random.
        numerics: speed of the search.
        bpda: layers whose gradient the search replaces, as in `Classifier`; for modules and names (a `Classifier` has
            its own).
        eot: draws of randomized models averaged per query, likewise.
        probabilities: the models return probabilities, likewise.
        straight_through: the search follows gradients through operations that pass none on, likewise.
        rejects: the last output of the models means that the image is rejected, likewise; not of surrogates.
        surrogates: models that the attacks query in place of `models`, which only judge the result: transfer attacks,
            each called ATTACK@SURROGATE.
        surrogate_weights: of surrogates given by name, one each.
        surrogate_ensemble: query all surrogates as one model, whose logits are the mean of theirs; a query of it counts
            as one pass.
        smooth: sigma, or a `Smoothing`: attack and certify the class that a module, or a model given by name, predicts
            most often for noisy copies; a `Classifier` has its own.
        audit: attack so many random survivors, which no attack broke, with AutoAttack, and bound the share of survivors
            that the attacks missed; None for no audit. Can be added to a finished run.
        precision: stop adding images when the 95 % interval of every model's accuracy, at every norm and radius, is
            within +- this share (0.01: one point); `samples` is the most. The interval is a confidence sequence for
            the accuracy on the whole data set, which holds although the run stops when it is narrow; None works on all
            `samples`.
        checks: "quick" checks the evidence for signs that the attacks failed, "standard" makes some passes of its own,
            "full" more of them, "none" none. Can be raised for a finished run.
        corruptions: judge the models on corrupted images too: "generated" or names such as "fog" for those of
            Hendrycks & Dietterich, "published" for a folder such as CIFAR-10-C beside the files of the data set, or
            the folder itself. With no attacks, `attacks=()`, on these alone.
        severities: of generated corruptions; by default 1 to 5.
        corruption_baseline: whose errors corruption errors (mCE) are divided by: a model of the run, "alexnet" for
            AlexNet's on ImageNet-C, or a CSV file of accuracies.
        remote: how models on servers (https://...) are queried.
        keep_adversarial: store every adversarial example in the run folder `out`, exactly: `Run.adversarial` returns
            them, and `robustkit verify RUN --model ...` has them judged again.
        declared: conditions such as "Linf@8/255>=0.4" that are stored before the first result; a card of the run says
            whether they hold.
        shard: "2/8" works on every eighth image, from the second on, in a folder of its own below `out`; "auto" reads
            the numbers of a Slurm array or of torchrun. `robustkit merge` joins the folders of all shards.
        workers: so many processes of one thread each attack the images, and this one writes the evidence; None attacks
            in this process. In a script, put the call under `if __name__ == "__main__":`.
        backend: where these processes run: "local" on this machine, "ray" on the nodes of a Ray cluster, where
            `workers` is the most of them and None takes all processors, or all GPUs.
        ray_address: HOST:PORT of the cluster, of which this machine is a node, or "auto" for the one that `ray start`
            started here; None takes that of RAY_ADDRESS, or starts a cluster of this machine for this run.
        watch: is told of the progress.
        progress: without a `watch`, show bars on standard error; None shows them in a terminal only.

    Raises:
        UserError: a number is out of range.
    """

    models: Model | Sequence[Model]
    _: KW_ONLY
    dataset: Data = "digits"
    attacks: GivenAttack | Sequence[GivenAttack] = "default"
    norm: str | Sequence[str] = ()
    eps: float | str | Sequence[float | str] = ()
    mask: Mask | Array | str | Path | None = None
    samples: int | None = 1000
    batch_size: int | Literal["auto", "max"] = "auto"
    device: str = "auto"
    seed: int = 0
    out: str | Path | None = None
    weights: str | Path | Sequence[str | Path] | None = None
    names: str | Sequence[str] = ()
    num_classes: int | None = None
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    train: bool = False
    retrain: bool = False
    random_init: bool = False
    numerics: Numerics = Numerics()
    bpda: Mapping[str, SurrogateGradient | None] | None = None
    eot: int | None = None
    probabilities: bool = False
    straight_through: bool = False
    rejects: bool = False
    surrogates: Model | Sequence[Model] = ()
    surrogate_weights: Sequence[str | Path] = ()
    surrogate_ensemble: bool = False
    smooth: float | Smoothing | None = None
    audit: int | None = None
    precision: float | None = None
    checks: str = "quick"
    corruptions: str | Path | Sequence[str | Path] = ()
    severities: int | Sequence[int] = ()
    corruption_baseline: str | Path | None = None
    remote: RemoteAccess | None = None
    keep_adversarial: bool = False
    declared: Sequence[str] = ()
    shard: str | None = None
    workers: int | None = None
    backend: Backend = "local"
    ray_address: str | None = None
    watch: ProgressWatch = _NOBODY
    progress: bool | None = None

    def __post_init__(self) -> None:
        if self.samples is not None and (not isinstance(self.samples, int) or self.samples < 1):
            least = "a whole number of at least 1, or None for all images"
            raise UserError(f"The number of samples must be {least}, not {self.samples!r}.")
        if not isinstance(self.numerics, Numerics):
            raise UserError(
                f"The numerics must be an object such as robustkit.Numerics(bf16=True), not {self.numerics!r}."
            )
        if self.bpda is not None and not isinstance(self.bpda, Mapping):
            raise UserError(
                "The surrogate gradients of bpda must be a mapping from names of modules, such as {'quantize': None}, "
                f"not {self.bpda!r}."
            )
        size = self.batch_size
        if size not in ("auto", "max") and (not isinstance(size, int) or size < 1):
            raise UserError(f"The batch size must be a whole number of at least 1, auto or max, not {size!r}.")
        if self.precision is not None and not 0 < self.precision < 0.5:
            raise UserError(f"A precision is a share above 0 and below 0.5, such as 0.01, not {self.precision!r}.")
        if self.audit is not None and (not isinstance(self.audit, int) or self.audit < 1):
            raise UserError(f"An audit attacks a whole number of at least 1 survivors, not {self.audit!r}.")
        if self.workers is not None and (not isinstance(self.workers, int) or not 1 <= self.workers <= MOST_WORKERS):
            raise UserError(f"Workers are a whole number from 1 to {MOST_WORKERS}, not {self.workers!r}.")
        if self.backend not in get_args(Backend):
            raise unknown("backend", str(self.backend), get_args(Backend))
        if self.ray_address is not None and self.backend != "ray":
            raise UserError("A Ray address is for the backend ray; add --backend ray, or leave the address out.")
        self._check_types()
        _ = self.level, self.own_shard

    def _check_types(self) -> None:
        for name in ("norm", "eps", "severities"):
            # An empty tuple is the default: the usual ones.
            if isinstance(getattr(self, name), list) and not getattr(self, name):
                raise UserError(f"{name} is an empty list; give at least one, or leave it out for the usual ones.")
        # Models and data are looked at where they are used, in more words.
        check_fields(self, "evaluate", but=("models", "dataset", "surrogates"))
        object.__setattr__(self, "seed", limits.whole_seed(self.seed))
        if self.out is not None and not str(self.out):
            raise UserError("out names no folder; give one, or None to keep the evidence in memory.")

    @contextmanager
    def watched(self) -> Iterator["EvaluationRequest"]:
        """The request with the watch that it asks for, while the context lasts."""
        if self.watch is not _NOBODY:
            yield self
            return
        with shown_progress(self.progress) as watch:
            yield replace(self, watch=watch)

    @property
    def in_workers(self) -> bool:
        """Whether other processes than this one attack the images."""
        return self.workers is not None or self.backend != "local"

    @property
    def level(self) -> Level:
        """The level of automatic checks.

        Raises:
            UserError: there is no such level.
        """
        if self.checks not in LEVELS:
            raise unknown("level of checks", str(self.checks), LEVELS)
        return next(level for level in LEVELS if level == self.checks)

    @property
    def own_shard(self) -> Shard | None:
        """The shard that is asked for, None for all images and for the only one.

        Raises:
            UserError: there is no such shard.
        """
        shard = None if self.shard is None else shard_of(self.shard, os.environ)
        return None if shard is None or shard.count == 1 else shard

    @property
    def smoothing(self) -> Smoothing | None:
        """How models are smoothed, None for not at all."""
        return Smoothing(self.smooth) if isinstance(self.smooth, (int, float)) else self.smooth
