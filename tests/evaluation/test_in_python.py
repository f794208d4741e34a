"""What a notebook or a script passes to `attack` and `evaluate`, and what it gets to see."""

import io
import sys
from functools import cache

import numpy as np
import pytest
import torch
from robustkit.attacks import PGD
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

import robustkit
from robustkit import UserError, evaluate, load_run
from robustkit.data import given_dataset
from tests.small import cnn, csv, data, linear

ASK = {"attacks": "fgsm", "eps": "0.1"}


class Items(Dataset):
    """The digits as most people write a data set."""

    def __init__(self, count: int = 12, change=lambda x, y: (x, int(y))) -> None:
        self.x, self.y = data(count)
        self.change = change

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, number: int):
        return self.change(self.x[number], self.y[number])


class Claiming(Items):
    """Says that it has more images than anybody could read."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int):
        return super().__getitem__(number % 12)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Items())


class Named(Items):
    """As torchvision has them."""

    def __init__(self) -> None:
        super().__init__()
        self.targets, self.train, self.classes = self.y.tolist(), False, list("abcdefghij")


def frozen(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.setflags(write=False)
    return array


X, Y = data(12)
ACCEPTED = {
    "arrays": (X.numpy(), Y.numpy()),
    "arrays that nobody may write into": (frozen(X.numpy()), frozen(Y.numpy())),  # ART's issue 2454
    "arrays in float64": (X.double().numpy(), Y.numpy().astype(np.uint16)),
    "arrays in another byte order": (X.numpy().astype(">f4"), Y.numpy().astype(">i8")),
    "lists": (X.tolist(), Y.tolist()),
    "a TensorDataset": TensorDataset(X, Y),
    "a data set": Items(),
    "a data set of arrays": Items(change=lambda x, y: (x.numpy(), y.numpy())),
    "a data set with targets": Named(),
    "a part of a data set": Subset(Items(20), range(12)),
    "two data sets": ConcatDataset([Subset(Items(), range(5)), Subset(Items(), range(5, 12))]),
    "a list of items": [(x, int(y)) for x, y in zip(X, Y, strict=True)],
    "a list of lists": [[x.numpy(), y] for x, y in zip(X, Y.numpy(), strict=True)],
    "a tuple of items": tuple((x, y) for x, y in zip(X, Y, strict=True)),
    "a loader": DataLoader(Items(), batch_size=5),
    "a shuffled loader": DataLoader(TensorDataset(X, Y), batch_size=5, shuffle=True),
}


@cache
def of_tensors():
    return evaluate(cnn(), dataset=(X, Y), **ASK)


@pytest.mark.parametrize("kind", ACCEPTED)
def test_images_in_any_common_form_give_the_same_evaluation(kind):
    one, other = evaluate(cnn(), dataset=ACCEPTED[kind], **ASK), of_tensors()

    assert one.results.accuracy.tolist() == other.results.accuracy.tolist()
    assert one.samples.drop(columns="model").equals(other.samples.drop(columns="model"))


def test_a_data_set_of_torchvision_keeps_its_name_split_and_classes():
    run = evaluate(linear(), dataset=Named(), **ASK)

    assert run.results.dataset[0] == "named"
    assert run.results.split[0] == "test"
    assert run.class_names == tuple("abcdefghij")


REFUSED = {
    "a tensor": (X, "without labels"),
    "a number": (3, "not int"),
    "three tensors": ((X, Y, Y), r"not tuple\[Tensor, Tensor, Tensor\]"),
    "texts": ((["a", "b"], Y), "numbers"),
    "uneven lists": (([[1.0], [1.0, 2.0]], Y), "numbers"),
    "a stream": (Stream(), "iterable"),
    "a loader of a stream": (DataLoader(Stream()), "iterable|sampler"),
    "a loader with its own batches": (DataLoader(Items(), collate_fn=list), "collate_fn"),
    "a loader of chosen images": (DataLoader(Items(), sampler=SubsetRandomSampler([1, 2])), "sampler"),
    "a loader of chosen batches": (DataLoader(Items(), batch_sampler=BatchSampler([1, 2], 1, False)), "sampler"),
    "a loader of some images": (DataLoader(Items(), sampler=RandomSampler(Items(), num_samples=3)), "sampler"),
    "images alone": (TensorDataset(X), "labels"),
    "items without labels": (Items(change=lambda x, y: x), "image and its label"),
    "labels as texts": (Items(change=lambda x, y: (x, "three")), "whole number"),
    "pictures": (Items(change=lambda x, y: ("picture", int(y))), "ToTensor"),
    "normalised images": (Items(change=lambda x, y: (2 * x - 1, int(y))), "normalisation"),
    "random images": (Items(change=lambda x, y: (torch.rand(1, 8, 8), int(y))), "random transforms"),
    "images of two sizes": (Items(change=lambda x, y: (x[:, : 4 + int(y)], int(y))), "size"),
    "a broken item": (Items(change=lambda x, y: 1 / 0), "ZeroDivisionError"),
    "no items": (Items(0), "empty"),
    "images without end": (Claiming(10**9), "more than 20,000,000"),
    "two data sets without end": (ConcatDataset([Claiming(10**9)] * 2), "more than 20,000,000"),
    "more images than an index can count": (Claiming(2**70), "length of Claiming cannot be read"),
    "a label beyond all classes": (Items(change=lambda x, y: (x, 2**60)), "below 50,000"),
    "a label beyond all types": (Items(change=lambda x, y: (x, 2**70)), "below 50,000"),
    "a listed label beyond all types": ((X[:2], [0, 2**70]), "63 bits"),
    "a label that turns negative": ((X[:2], np.array([0, 2**63 + 5], dtype=np.uint64)), "63 bits"),
    "channels last": ((torch.rand(2, 12, 9, 3), Y[:2]), "permute"),
    "channels last of one channel": ((torch.rand(2, 12, 12, 1).numpy(), Y[:2]), "transpose"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_other_data_are_refused_in_one_line(kind):
    given, words = REFUSED[kind]
    with pytest.raises(UserError, match=words) as error:
        evaluate(linear(), dataset=given, **ASK)

    assert "\n" not in str(error.value)


def test_of_a_part_only_the_labels_of_its_items_are_read():
    part = Subset(ConcatDataset([Items(), Claiming(10**9)]), [-1, 3, 14, 10**9 - 1])

    assert given_dataset(part).labels.tolist() == Y[[(10**9 - 1) % 12, 3, 2, (10**9 - 13) % 12]].tolist()


@pytest.mark.parametrize("shape", [(4, 8, 3, 3), (4, 12, 40, 1), (4, 3, 5, 3), (4, 1, 6, 1)])
def test_narrow_images_with_many_channels_are_not_taken_for_channels_last(shape):
    assert given_dataset((torch.rand(shape), Y[:4])).batch([0])[0].shape == (1, *shape[1:])


def test_attack_takes_a_text_and_arrays():
    one = robustkit.attack(cnn(), X.numpy(), Y.numpy(), "pgd:steps=3", eps="0.1")
    other = robustkit.attack(cnn(), X, Y, PGD(eps="0.1", steps=3))

    assert torch.equal(one.x_adv, other.x_adv)


ATTACKS = {
    "a text without a radius": ((linear(), X, Y, "pgd:steps=3"), {}, "eps="),
    "two radii": ((linear(), X, Y, PGD(eps="0.1")), {"eps": 0.1}, "leave out eps"),
    "a class": ((linear(), X, Y, PGD), {"eps": 0.1}, "is a class"),
    "a loader": ((linear(), DataLoader(Items()), Y, "pgd"), {"eps": 0.1}, r"evaluate\(dataset"),
    "a data set": ((linear(), Items(), Y, "pgd"), {"eps": 0.1}, r"evaluate\(dataset"),
    "no labels": ((linear(), X, None, "pgd"), {"eps": 0.1}, "labels must be"),
    "a name for the model": (("resnet18", X, Y, "pgd"), {"eps": 0.1}, "load_model"),
    "a function for the model": ((lambda x: x, X, Y, "pgd"), {"eps": 0.1}, "robustkit.BlackBox"),
    "one number for the images": ((linear(), torch.tensor(0.5), Y, "pgd"), {"eps": 0.1}, "an axis"),
    "targets as texts": ((linear(), X, Y, "pgd"), {"eps": 0.1, "target": ["a"]}, "numbers"),
    "channels last": ((linear(), X.permute(0, 2, 3, 1), Y, "pgd"), {"eps": 0.1}, "permute"),
}


@pytest.mark.parametrize("kind", ATTACKS)
def test_what_attack_cannot_take_is_refused_in_one_line(kind):
    given, more, words = ATTACKS[kind]
    with pytest.raises(UserError, match=words) as error:
        robustkit.attack(*given, **more)

    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: evaluate(linear(), dataset=(X, Y), samples="all", **ASK), r"or None for all images, not 'all'"),
        (lambda: evaluate(linear(), attack="fgsm"), r"evaluate\(\) has no argument 'attack'; did you mean attacks\?"),
        (
            lambda: evaluate(linear(), bf16=True),
            r"no argument 'bf16'; give numerics=robustkit\.Numerics\(bf16=\.\.\.\)\.",
        ),
        (lambda: robustkit.corruptions(linear(), sample=5), r"corruptions\(\) has no argument 'sample'.*samples\?"),
        (lambda: evaluate(linear(), (X, Y), "fgsm"), r"evaluate\(\) takes only models by position, .* dataset="),
        (lambda: evaluate(dataset=(X, Y)), r"evaluate\(\): missing a required argument: 'models'"),
        (
            lambda: robustkit.load_dataset("digits", splitt="train"),
            r"load_dataset\(\) has no argument 'splitt'.*split\?",
        ),
        (lambda: load_run("a", "b"), r"load_run\(\) takes only folder by position, .* leave out the others"),
        (lambda: evaluate(linear(), dataset=(X, Y), numerics="bf16", **ASK), r"Numerics\(.*not 'bf16'"),
        (lambda: evaluate(linear(), dataset=(X, Y), bpda="1", **ASK), r"mapping .*not '1'"),
        (lambda: evaluate(linear(), dataset=(X, Y), **{**ASK, "norm": 5}), r"evaluate\(\): norm must be str"),
        (lambda: evaluate(linear(), dataset=(X, Y), shard=(1, 3), **ASK), r"evaluate\(\): shard must be str or None"),
        (lambda: evaluate(linear(), dataset=(X, Y), watch=None, **ASK), r"watch must be ProgressWatch"),
        (lambda: evaluate(linear(), dataset=(X, Y), declared=5, **ASK), r"declared must be Sequence\[str\], not int"),
        (lambda: evaluate(linear(), dataset=(X, Y), bpda={"0": 5}, **ASK), "bpda gives each layer a function"),
        (lambda: evaluate(linear(), dataset=(X, Y), **{**ASK, "eps": []}), "eps is an empty list"),
        (lambda: evaluate(linear(), dataset=(X, Y), norm=[], **ASK), "norm is an empty list"),
        (lambda: evaluate(linear(), dataset=(X, Y), severities=[], **ASK), "severities is an empty list"),
        (lambda: evaluate(linear(), dataset=(X, Y), out="", **ASK), "out names no folder"),
        (lambda: evaluate(linear(), dataset=(X, Y), keep_adversarial=True, **ASK), "name one with out"),
        (lambda: robustkit.attack(linear(), X, Y, "fgsm", eps=0.1, batch_size=1.5), r"attack\(\): batch_size must be"),
        (lambda: robustkit.attack(linear(), X, Y, "fgsm", eps=0.1, numbers=[2**63, *range(11)]), r"2\*\*63"),
        (lambda: robustkit.attack(linear(), X, Y, "fgsm", eps=0.1, norm=None), r"norm must be str, not NoneType"),
    ],
)
def test_names_and_values_of_the_command_line_are_explained_in_python(call, words):
    """A TypeError spoke of EvaluationRequest.__init__(), which nobody had called."""
    with pytest.raises(UserError, match=words) as error:
        call()
    assert "EvaluationRequest" not in str(error.value)


@pytest.mark.parametrize("seed", [-1, 2**31, 2**64, 1.5, "0", None, True])
def test_a_seed_out_of_range_is_refused_by_its_name(seed):
    # "None/run.sqlite was damaged" said -1 without any folder.
    for call in (
        lambda: evaluate(linear(), dataset=(X, Y), seed=seed, **ASK),
        lambda: robustkit.attack(linear(), X, Y, "fgsm", eps=0.1, seed=seed),
        lambda: robustkit.diagnose(linear(), X, Y, eps=0.1, seed=seed),
    ):
        with pytest.raises(UserError, match="seed must be"):
            call()


def test_a_seed_of_numpy_is_one(tmp_path):
    one, other = (evaluate(linear(), dataset=(X, Y), seed=seed, out=tmp_path, **ASK) for seed in (np.int64(3), 3))

    assert one.results.equals(other.results)


def test_evaluate_writes_the_files_of_the_command_line(tmp_path):
    run = evaluate(linear(), dataset=data(12), out=tmp_path / "run", **ASK)
    files = {file.name for file in (tmp_path / "run").iterdir()}

    assert files == {"run.sqlite", "results.csv", "samples.csv", "report.html"}
    assert ((tmp_path / "run" / "results.csv").read_bytes(), (tmp_path / "run" / "samples.csv").read_bytes()) == csv(
        run, tmp_path
    )


def test_a_run_in_memory_is_written_where_one_says(tmp_path):
    run = evaluate(linear(), dataset=data(12), **ASK)
    run.write(tmp_path / "new")

    assert {file.name for file in (tmp_path / "new").iterdir()} == {"results.csv", "samples.csv", "report.html"}
    with pytest.raises(UserError, match=r"run\.write"):
        run.write()


def test_a_printed_run_is_its_table(tmp_path, capsys):
    from rich.console import Console
    from robustkit.reports import print_table

    run = evaluate(linear(), dataset=data(12), out=tmp_path, **ASK)
    print_table(run, Console())
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]

    assert str(run).splitlines() == str(load_run(tmp_path)).splitlines() == lines
    assert len(lines) < 20
    assert "\n" not in repr(run)
    assert "sequential" in repr(run)
    assert run._repr_html_().startswith("<pre>")


def test_results_can_be_compared_and_put_into_lists_and_sets():
    # "The truth value of a DataFrame is ambiguous" said pandas, and torch something like it.
    runs = [evaluate(linear(), dataset=data(12), **ASK) for _ in range(2)]
    attacked = [robustkit.attack(linear(), X, Y, "fgsm", eps=0.1) for _ in range(2)]

    for one, other in (runs, attacked):
        assert one in [other, one]
        assert one != other
        assert len({one, other}) == 2


def test_a_run_is_a_text_in_a_notebook_too(monkeypatch):
    # str(run) was empty there, and each part of the table became an output of the cell.
    run = evaluate(linear(), dataset=data(12), **ASK)
    table = str(run)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)

    assert str(run) == table != ""
    assert "worst-case" in run._repr_html_()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "more", "shown"),
    [
        (Terminal, {}, True),
        (Terminal, {"progress": False}, False),
        (io.StringIO, {}, False),
        (io.StringIO, {"progress": True}, True),
    ],
)
def test_an_evaluation_shows_its_progress_in_a_terminal_or_where_it_is_asked_to(stream, more, shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream())
    evaluate(linear(), dataset=data(4), **more, **ASK)

    assert bool(sys.stderr.getvalue()) == shown


@pytest.mark.parametrize(("more", "shown"), [({}, False), ({"progress": None}, True), ({"progress": True}, True)])
def test_an_attack_shows_its_progress_where_it_is_asked_to(more, shown, monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    robustkit.attack(linear(), *data(4), PGD(eps="0.1", steps=2), **more)

    assert bool(sys.stderr.getvalue()) == shown


def test_a_batch_that_may_fill_the_memory_changes_nothing_on_a_cpu():
    auto, most = (evaluate(linear(), dataset=data(20), **ASK, batch_size=size) for size in ("auto", "max"))

    assert most.samples.equals(auto.samples)


@pytest.mark.parametrize(
    "option", [{"straight_through": True}, {"bpda": {"0": None}}, {"probabilities": True}, {"eot": 3}], ids=str
)
def test_options_of_the_search_are_not_dropped_where_a_classifier_is_given(option):
    """A DCT defense looked as robust with straight_through=True as without: the Classifier had no such option."""
    with pytest.raises(UserError, match=f"brings its own options.*{next(iter(option))}"):
        evaluate(robustkit.Classifier(linear()), dataset=data(2), **ASK, **option)


def test_a_classifier_with_the_option_of_the_call_is_evaluated():
    classifier = robustkit.Classifier(linear(), straight_through=True)
    evaluated = evaluate(classifier, dataset=data(2), **ASK, straight_through=True)

    assert evaluated.results.role.iloc[0] == "clean"
