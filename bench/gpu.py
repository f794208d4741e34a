"""One table of everything that is to be measured on a GPU, in one call of less than ten minutes.

PGD-40 in Linf on torchvision's networks by robustkit, torchattacks, foolbox and a bare loop of forwards and input
gradients: images per second, peak memory, the share of time in which the GPU waits, and the accuracies, which must
agree. Once with radius 0, where every image takes all steps, and once with 8/255, where robustkit gives the slots of
broken images to others. Then adversarial fine-tuning by one process and by one on each GPU, the default ensemble, and
compiled networks. What the time does not suffice for is listed as not run.

    python bench/gpu.py --random-init                            # made-up images: speed and equal verdicts alone
    python bench/gpu.py --data FOLDER                            # torchvision's published weights, pictures by class
    python bench/gpu.py --tiny                                   # small networks on the CPU: whether every row runs
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import torch
import torchvision
from gpu_tools import COMPILED, ROWS, SEARCHES, Opened, Row
from peers import STEPS, Task
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.data import TensorDataset

from robustkit import Classifier, evaluate, load_dataset
from robustkit.classifier.isolation import products
from robustkit.host.environment import environment
from robustkit.models.preprocessing import Normalised

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
NETWORKS = ("resnet18", "resnet50", "vit_b_16")
CLASSES = 1000
RADII = (0.0, 8 / 255)
MIB = 1 << 20


class Scale(NamedTuple):
    """How much is measured."""

    device: str
    images: int
    batch: int
    steps: int
    seconds: float  # in which a row is repeated
    training_images: int
    training_batch: int
    default_images: int


ON_GPU = Scale("cuda", 256, 128, STEPS, 4.0, 8192, 512, 32)
TINY = Scale("cpu", 8, 4, 3, 0.0, 64, 32, 2)


class Measured(NamedTuple):
    start: float  # seconds before the first run
    speed: float  # images per second
    memory: float  # MiB at the peak
    waiting: float | None  # share of the time in which the GPU computes nothing
    robust: Tensor  # [N] bool


class Subject(NamedTuple):
    model: nn.Module
    x: Tensor
    y: Tensor
    batch: int


class Baseline(NamedTuple):
    """What other rows are compared with."""

    speed: float  # of the bare loop
    verdicts: Tensor | None  # of robustkit in fp32


class Table:
    """Lines of Markdown, printed as they come and written to a file."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_text("")

    def line(self, *cells: object) -> None:
        text = "| " + " | ".join(map(str, cells)) + " |" if len(cells) > 1 else str(cells[0])
        print(text, flush=True)
        with self.file.open("a") as out:
            out.write(text + "\n")

    def head(self, title: str, *names: str) -> None:
        for line in ("", title, ""):
            self.line(line)
        self.line(*names)
        self.line(*["---"] * len(names))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with one sub-folder of pictures for each ImageNet class")
    parser.add_argument("--random-init", action="store_true", help="networks without published weights")
    parser.add_argument("--tiny", action="store_true", help="small networks on the CPU")
    parser.add_argument("--only", help=f"networks; all are {','.join(NETWORKS)}")
    parser.add_argument("--row", action="append", help="of the attacks' tables, and no other table; may be repeated")
    parser.add_argument("--minutes", type=float, default=9.0, help="after which no row is begun")
    parser.add_argument("--out", type=Path, default=Path("gpu.md"))
    options = parser.parse_args()
    scale = TINY if options.tiny else ON_GPU
    if not options.tiny and not torch.cuda.is_available():
        parser.error("there is no GPU here; --tiny shows on a CPU whether every row runs")
    end, device, table = time.monotonic() + 60 * options.minutes, torch.device(scale.device), Table(options.out)
    if options.tiny:
        # Neither the compiler's time nor its result is of interest there.
        torch.compile = partial(torch.compile, backend="eager")
    describe(table, device, scale, options)
    names = options.only.split(",") if options.only else NETWORKS[:: 2 if options.tiny else 1]
    subjects = {name: subject(name, scale, device, options) for name in names}
    baselines: dict[str, Baseline] = {}
    wanted = [row for row in ROWS if options.row is None or row.name in options.row]
    for eps in RADII:
        for name in names:
            baseline = attacks(table, name, subjects[name], eps, wanted, scale, end)
            baselines.setdefault(name, baseline)
        if not eps and options.row is None:
            training(table, scale, device, end)
    if options.row is not None:
        return
    default(table, names[0], subjects[names[0]], scale, end)
    for name in names:
        attacks(table, name, subjects[name], 0.0, COMPILED, scale, end, baselines[name])


def describe(table: Table, device: torch.device, scale: Scale, options: argparse.Namespace) -> None:
    about = environment(device)
    others = ", ".join(f"{name} {_version(name)}" for name in ("torchattacks", "foolbox"))
    on_gpu = device.type == "cuda"
    gpus = f"{torch.cuda.device_count()} x {about['device']}, CUDA {torch.version.cuda}" if on_gpu else "No GPU"
    table.line(f"{gpus}; {platform.machine()}, {about['processors']} processors, {about['threads']} threads.")
    table.line(f"torch {about['torch']}, torchvision {about['torchvision']}, Python {about['python']}, {others}.")
    table.line(f"Command: `python bench/gpu.py {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d', time.gmtime())}.")


def subject(name: str, scale: Scale, device: torch.device, options: argparse.Namespace) -> Subject:
    """A network, and images with their labels; made-up images have the class that the network predicts."""
    model = network(name, options.tiny, options.random_init).to(device).eval().requires_grad_(False)
    # A transformer takes four times as long as resnet50.
    share = 2 if name.startswith("vit") and not options.tiny else 1
    count, batch, side = scale.images // share, scale.batch // share, 32 if options.tiny else 224
    if options.data is not None:
        data = load_dataset(str(options.data), image_size=side)
        x, y = data.batch(range(min(count, len(data))))
        return Subject(model, x.to(device), y.to(device), batch)
    x = torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0)).to(device)
    with torch.no_grad(), products(device, tf32=False, deterministic=False):
        return Subject(model, x, torch.cat([model(part).argmax(1) for part in x.split(batch)]), batch)


def network(name: str, tiny: bool, random: bool) -> nn.Module:
    torch.manual_seed(0)
    if not tiny:
        return Normalised(torchvision.models.get_model(name, weights=None if random else "DEFAULT"), MEAN, STD)
    if name.startswith("vit"):
        small: nn.Module = torchvision.models.VisionTransformer(32, 8, 1, 2, 16, 32, num_classes=CLASSES)
    else:
        small = nn.Sequential(nn.Conv2d(3, 8, 3, 4, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, CLASSES))
    return Normalised(small, MEAN, STD)


def attacks(
    table: Table, name: str, subject: Subject, eps: float, rows: Sequence[Row], scale: Scale, end: float,
    baseline: Baseline | None = None,
) -> Baseline:  # fmt: skip
    model, x, y, batch = subject
    task = Task(x, y, eps, batch, seed=0, steps=scale.steps)
    table.head(
        f"PGD-{task.steps}, {name}, eps {255 * eps:g}/255, {len(x)} images, batches of {batch}",
        "tool", "images/s", "of the bare loop", "GPU waits", "peak MiB", "start s", "robust %", "as robustkit's fp32",
    )  # fmt: skip
    speed, verdicts = (0.0, None) if baseline is None else baseline
    for row in rows:
        result = "not run: out of time" if time.monotonic() > end else measured(row, model, task, scale)
        if isinstance(result, str):
            table.line(row.name, result, *[""] * 6)
            continue
        judges = not row.name.startswith("bare loop")
        speed = result.speed if row.name == "bare loop" else speed
        verdicts = result.robust if row.name == "robustkit" else verdicts
        table.line(
            row.name, f"{result.speed:.1f}", f"{result.speed / speed:.2f}" if speed else "",
            "" if result.waiting is None else f"{100 * result.waiting:.0f} %", f"{result.memory:.0f}",
            f"{result.start:.1f}", f"{100 * result.robust.double().mean().item():.1f}" if judges else "",
            f"{int((result.robust == verdicts).sum())} of {len(x)}" if judges and verdicts is not None else "",
        )  # fmt: skip
    return Baseline(speed, verdicts)


def measured(row: Row, model: nn.Module, task: Task, scale: Scale) -> Measured | str:
    """The result, or in a few words why there is none."""
    device = task.x.device
    first = task._replace(x=task.x[: task.batch], y=task.y[: task.batch], steps=2)
    try:
        with products(device, tf32=row.tf32, deterministic=False):
            began = time.perf_counter()
            with row.tool(model, task) as run:
                seconds(run, first, device)  # kernels are chosen and compiled here
                start = time.perf_counter() - began
                if device.type == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                times = []
                while not times or (sum(times) < scale.seconds and len(times) < 3):
                    spent, robust = seconds(run, task, device)
                    times.append(spent)
                memory = torch.cuda.max_memory_allocated() / MIB if device.type == "cuda" else 0.0
                return Measured(start, len(task.x) / min(times), memory, waiting(run, task, device), robust.cpu())
    except Exception as error:  # a package that is missing, a model that cannot be captured, memory that is too short
        return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:80]}".replace("|", "/")


def seconds(run: Opened, task: Task, device: torch.device) -> tuple[float, Tensor]:
    _finish(device)
    since = time.perf_counter()
    robust = run(task)
    _finish(device)
    return time.perf_counter() - since, robust


def waiting(run: Opened, task: Task, device: torch.device) -> float | None:
    """The share of one batch's time in which no kernel runs; a little too large, as the profiler slows the host."""
    if device.type != "cuda":
        return None
    part = task._replace(x=task.x[: task.batch], y=task.y[: task.batch], steps=10)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        spent = seconds(run, part, device)[0]
    busy = sum(event.self_device_time_total for event in seen.key_averages()) / 1e6
    return max(0.0, 1 - busy / spent)


def default(table: Table, name: str, subject: Subject, scale: Scale, end: float) -> None:
    x, y = (each[: scale.default_images].cpu() for each in (subject.x, subject.y))
    table.head(
        f"The default ensemble, {name}, Linf, {len(x)} images, as `robustkit evaluate` runs it",
        "search", "eps", "seconds", "images/s", "robust %",
    )  # fmt: skip
    for eps in ("8/255", "1/1020"):
        for search, options in SEARCHES.items():
            if time.monotonic() > end:
                table.line(search, eps, "not run: out of time", "", "")
                continue
            since = time.perf_counter()
            classifier = Classifier(subject.model, **options)
            result = evaluate(
                classifier, dataset=TensorDataset(x, y), norm="Linf", eps=eps, samples=None, device=scale.device,
                progress=False,
            )  # fmt: skip
            spent = time.perf_counter() - since
            robust = result.results.query("role == 'worst-case'")["accuracy"].item()
            table.line(search, eps, f"{spent:.1f}", f"{len(x) / spent:.2f}", f"{100 * robust:.1f}")


def training(table: Table, scale: Scale, device: torch.device, end: float) -> None:
    network = "a small network" if scale is TINY else "resnet18"
    table.head(
        f"Adversarial fine-tuning with PGD-7, {network}, {scale.training_images} images of 3x32x32, batches of "
        f"{scale.training_batch}, the second epoch without validation",
        "processes", "arithmetic", "s/epoch", "images/s", "of one process", "loss",
    )  # fmt: skip
    most = torch.cuda.device_count() if device.type == "cuda" else 2
    alone = 0.0
    for count, bf16 in ((1, False), *([(most, False)] if most > 1 else []), (1, True)):
        if time.monotonic() > end:
            table.line(count, "bf16" if bf16 else "fp32", "not run: out of time", "", "", "")
            continue
        result = trained(scale, count, bf16)
        if isinstance(result, str):
            table.line(count, "bf16" if bf16 else "fp32", result, "", "", "")
            continue
        spent = result["seconds"][1]
        alone = alone or spent
        table.line(
            count, "bf16" if bf16 else "fp32", f"{spent:.2f}", f"{scale.training_images / spent:.0f}",
            f"{alone / spent:.2f}", f"{result['loss'][1]:.6f}",
        )  # fmt: skip
    if device.type == "cuda" and most == 1:
        table.line("")
        table.line("There is one GPU, so training on several was not measured.")


def trained(scale: Scale, count: int, bf16: bool) -> dict | str:
    script = str(Path(__file__).with_name("gpu_training.py"))
    start = [sys.executable] if count == 1 else [sys.executable, "-m", "torch.distributed.run", "--standalone",
                                                 "--nproc-per-node", str(count)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [*start, script, "--device", scale.device, "--images", str(scale.training_images), "--batch",
                   str(scale.training_batch), "--out", str(out), *(["--bf16"] if bf16 else []),
                   *(["--tiny"] if scale is TINY else [])]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, check=False, text=True, timeout=240)
        except subprocess.TimeoutExpired:
            return "took more than 240 s"
        if not out.exists():
            return (done.stderr.strip().splitlines() or ["no result"])[-1][:80].replace("|", "/")
        return json.loads(out.read_text())


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    main()
