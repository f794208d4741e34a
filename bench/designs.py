"""The search for the default ensemble: designs side by side on the networks and images that budgets were chosen on.

Each design is a cascade like `rk-7` in `robustkit/primitives/ensemble_versions.py`. It is compared with `autoattack`,
whose verdicts take long and are kept in `--keep DIR`. What is reported elsewhere (bench/default.py) was not looked at
here.

    python bench/designs.py --zoo DIR --keep DIR [--only L2] [--designs "rk-2;rk-3"] [--images 128] [--seeds 2]
    python bench/designs.py --zoo DIR --alone  # without autoattack: passes for an image that the design itself leaves
"""

import argparse
from pathlib import Path

import torch
from default import CASES, Case, Verdicts, mean, per_survivor, subject_of, verdicts
from subjects import digits

from robustkit.primitives import ensembles
from robustkit.primitives.ensemble_versions import paced
from robustkit.primitives.measure import Measure
from robustkit.primitives.stage import Limits, Stage, Threshold

ANY, NINE, FOUR = float("inf"), Measure(classes=9), Measure(classes=4)
FIRST, SECOND, TARGETED, LONG, _, SQUARE = ensembles.stages("rk-1", "Linf")


def member(
    specification: str, label: str, below: float, if_bent: float | None = None, measures: Measure | None = None
) -> Stage:
    return Stage(specification, label, Threshold(Limits(below, below if if_bent is None else if_bent)), measures)


FAB = member("fab-t:steps=30,targets=3", "fab", 0.5)


def wide(steps: int, radius: int, below: float, if_bent: float, restarts: int = 1) -> Stage:
    spec = f"apgd-ce:steps={steps},start_radius={radius}" + (f",restarts={restarts}" if restarts > 1 else "")
    return member(spec, f"wide{radius}", below, if_bent, NINE)


def wide_first(radius: int) -> Stage:
    return Stage(f"apgd-ce:steps=20,start_radius={radius}", "first", measures=NINE)


# Bent images get less: as strong on trades_mnist and resnet2b_cifar at fewer passes, but on resnet18 for digits (the
# main command) 4 of 504 images stand that are bent, have a ratio of 0.86 to 1.02 and fall otherwise.
NEARER = (
    FIRST,
    member("apgd-ce:steps=20", "second", 1.0, 1.0, NINE),
    member("apgd-t:steps=30,targets=9", "targeted", 1.0, 0.8),
    member("apgd-ce:steps=100", "long", 0.5, 0.5, NINE),
)

# How rk-4 came about.
ONE_WIDTH = "widest=0.03,narrowest=0.03"
RK_4 = ensembles.stages("rk-4", "Linf")
SOFT_SECOND = member(f"soft_apgd:steps=20,{ONE_WIDTH}", "second", 1.0, 1.5, NINE)
TARGETED_THRICE = RK_4[2]._replace(specification="apgd-t:steps=30,targets=9")
RARELY_LONG, LATE_SQUARE = RK_4[3], RK_4[5]

# How rk-6 came about: in L2 and L1 short starts on the margin save few passes or lose images.
MARGIN = "soft_apgd:steps=20,loss=margin"
RK_4_L2, RK_4_L1 = ensembles.stages("rk-4", "L2"), ensembles.stages("rk-4", "L1")

# How rk-7 came about: with the ratio at the best point alone, bent images get less, or more.
RK_6, RK_7 = ensembles.stages("rk-6", "Linf"), ensembles.stages("rk-7", "Linf")
BY_BEST_POINT = (
    FIRST._replace(measures=FOUR),
    Stage("soft_apgd:steps=20", "second", Threshold(Limits(2.0, 1.2, 1.5)), FOUR),
    Stage(MARGIN, "third", Threshold(Limits(1.0, 0.35, 1.1)), FOUR),
    Stage("soft_apgd:steps=30,loss=dlr,targets=3", "targeted", Threshold(Limits(1.0, 0.25, 1.1)), targets_at_least=3),
    *RK_7[4:],
)


def far_when_clean(stage: Stage) -> Stage:
    return stage._replace(threshold=stage.threshold._replace(far=2.0))


RK_7_L2 = ensembles.stages("rk-7", "L2")


# After rk-7: a race of target classes in place of all its gradient searches but the first and the restarts.
FIRST_AND_CLEAN = RK_7[0]._replace(measures=Measure(classes=4, clean_below=4.0))
RACE = Stage("raced_apgd:pace=0.4", "race", Threshold(Limits(9.0), far=2.5), FOUR, for_noise=False)
STILL_NEAR = Threshold(Limits(0.4, 0.4, 2.5))

# After rk-12: only the ratio at the clean image says which images are far.
RK_12 = ensembles.stages("rk-12", "Linf")
BY_CLEAN_IMAGE = Threshold(Limits(ANY, ANY), far=2.0)

# How rk-13 came about: searches that are given up pay for more of them, or for a race.
PACED = (RK_12[0], *map(paced, RK_12[1:4]), RK_12[4], paced(RK_12[5]), RK_12[6])
WIDE_MEASURE = Measure(4, clean_below=4.0, unseen=True, clean_gradient=True, random_step=True)
LONG_RACE = Stage(
    "raced_apgd:steps=100,pace=0.4", "race", RK_12[3].threshold, FOUR._replace(vanishing=True), for_noise=False
)
RK_13 = ensembles.stages("rk-13", "Linf")
RK_12_L2, RK_12_L1 = ensembles.stages("rk-12", "L2"), ensembles.stages("rk-12", "L1")


def measured_below(first: Stage, ratio: float) -> Stage:
    """The first member, which measures the ratio at the clean image, too, of images with a ratio below this."""
    assert first.measures is not None
    return first._replace(measures=first.measures._replace(clean_below=ratio))


# After rk-13: where following the gradient obtains little, no ratio says that an image is far.
def also_if_bent(far: float, *limits: float) -> Threshold:
    return Threshold(Limits(*limits, ANY, ANY), 1.4, Limits(far, ANY), far=far)


# In L1 many short plain searches break more than few long soft ones.
PLAIN_STARTS = RK_12_L1[1]._replace(specification="apgd-ce:steps=20,start_radius=6,restarts=4")


# How rk-14 came about: searches from larger balls are given up in the last one, too; a start in place of three, a race.
RK_13_L2, RK_14_L2 = ensembles.stages("rk-13", "L2"), ensembles.stages("rk-14", "L2")
HALF_L2 = (*(paced(stage, 0.5) for stage in RK_13_L2[:3]), RK_13_L2[3], paced(RK_13_L2[4], 0.5), *RK_13_L2[5:])
ONE_START, SOON = "soft_apgd:steps=20,start_radius=4,pace=0.5", Threshold(Limits(1.2, 1.2))
NEXT_TWO = HALF_L2[1]._replace(
    specification="soft_apgd:steps=20,start_radius=4,restarts=2,pace=0.5", label="third", threshold=SOON
)
ONE_AND_TWO = (HALF_L2[0], HALF_L2[1]._replace(specification=ONE_START), NEXT_TWO, *HALF_L2[3:])
HALF_L1 = tuple(stage if stage.label == "square" else paced(stage, 0.5) for stage in ensembles.stages("rk-13", "L1"))


# By norm. Members have one label each.
DESIGNS: dict[str, dict[str, tuple[Stage, ...]]] = {
    "Linf": {
        "rk-2": ensembles.stages("rk-2", "Linf"),
        "guided for fab": (
            FIRST, SECOND, TARGETED, LONG, member("guided_square:steps=300", "guided", 0.2), SQUARE,
        ),
        "nearer": (*NEARER, member("square:queries=3000,shrink_over=5000", "square", 0.08)),
        "nearer, guided": (
            *NEARER, member("guided_square:steps=300", "guided", 0.2),
            member("square:queries=2500,shrink_over=5000", "square", 0.1),
        ),
        "nearer, longer": (
            *NEARER, member("guided_square", "guided", 0.25),
            member("square:queries=2500,shrink_over=5000", "square", 0.2),
        ),
        "rk-3": ensembles.stages("rk-3", "Linf"),
        "soft restarts": (
            FIRST, SECOND, TARGETED, LONG,
            member(f"soft_apgd:steps=50,restarts=5,loss=margin,{ONE_WIDTH}", "restarts", 0.3), LATE_SQUARE,
        ),
        "three targets": (
            FIRST, SOFT_SECOND, TARGETED_THRICE, RARELY_LONG,
            member("soft_apgd:steps=50,restarts=5,loss=margin", "restarts", 0.25), LATE_SQUARE,
        ),
        "soft targets": (
            FIRST, SOFT_SECOND, RK_4[2], RARELY_LONG,
            member("soft_apgd:steps=30,restarts=3,loss=margin", "restarts", 0.25), LATE_SQUARE,
        ),
        "soft for long": (
            FIRST, SOFT_SECOND, RK_4[2],
            member("soft_apgd:steps=30,restarts=2,loss=margin", "long", 0.2, 0.5, NINE),
            member("soft_apgd:steps=30,restarts=3,loss=margin", "restarts", 0.2), LATE_SQUARE,
        ),
        "rk-4": ensembles.stages("rk-4", "Linf"),
        "rk-5": ensembles.stages("rk-5", "Linf"),
        "rk-6": RK_6,
        "best point alone": BY_BEST_POINT,
        "far when clean": (RK_7[0], *map(far_when_clean, BY_BEST_POINT[1:4]), *RK_7[4:]),
        "nine short targets": (
            *RK_7[:3], RK_7[3]._replace(specification="soft_apgd:steps=10,loss=dlr,targets=9", targets_at_least=9),
            *RK_7[4:],
        ),
        "thirty steps": (
            *RK_7[:3], RK_7[3]._replace(specification="soft_apgd:steps=30,loss=dlr,targets=4"), *RK_7[4:],
        ),
        "rk-7": RK_7,
        "rk-8": ensembles.stages("rk-8", "Linf"),
        "rk-9": ensembles.stages("rk-9", "Linf"),
        "rk-10": ensembles.stages("rk-10", "Linf"),
        "rk-11": ensembles.stages("rk-11", "Linf"),
        "rk-12": ensembles.stages("rk-12", "Linf"),
        "clean image alone": (
            RK_12[0]._replace(measures=Measure(4, clean_below=ANY, unseen=True, clean_gradient=True, random_step=True)),
            *(stage._replace(threshold=BY_CLEAN_IMAGE) for stage in RK_12[1:4]), *RK_12[4:],
        ),
        "paced": PACED,
        "paced, by clean image": (
            RK_12[0]._replace(measures=WIDE_MEASURE), *(each._replace(threshold=BY_CLEAN_IMAGE) for each in PACED[1:4]),
            *PACED[4:],
        ),
        "paced and raced": (*PACED[:2], LONG_RACE, *PACED[3:]),
        "rk-13": RK_13,
        "rk-13, six classes": (
            *RK_13[:2], RK_13[2]._replace(specification="raced_apgd:steps=100,pace=0.4,rivals=6"),
            RK_12[3]._replace(specification="soft_apgd:steps=20,loss=dlr,targets=6,pace=0.5", targets_at_least=6),
            *RK_13[4:],
        ),
        "bent images, too": (
            RK_13[0], RK_13[1]._replace(threshold=also_if_bent(2.0, 2.0)), RK_13[2],
            RK_13[3]._replace(threshold=also_if_bent(2.0, 1.5)), *RK_13[4:],
        ),
        "bent and far images, too": (
            measured_below(RK_13[0], 3.0), RK_13[1]._replace(threshold=also_if_bent(2.5, 2.5)), RK_13[2],
            RK_13[3]._replace(threshold=also_if_bent(2.5, 2.0)), *RK_13[4:],
        ),
        "race": (FIRST_AND_CLEAN, RACE, *RK_7[5:]),
        "second and race": (FIRST_AND_CLEAN, RK_7[1], RACE, *RK_7[5:]),
        "race and long": (FIRST_AND_CLEAN, RACE, Stage("apgd-ce:steps=50", "long", STILL_NEAR), *RK_7[5:]),
    },
    "L2": {
        "rk-1": ensembles.stages("rk-1", "L2"),
        "wide for second": (FIRST, wide(20, 6, 1.0, 4.0), TARGETED, LONG, FAB, SQUARE),
        "wide after first": (FIRST, wide(20, 6, ANY, ANY), TARGETED, wide(40, 10, 1.5, 3.0), FAB, SQUARE),
        "wide first": (wide_first(6), TARGETED, wide(40, 10, 1.5, 3.0), FAB, SQUARE),
        "three targets": (
            wide_first(6), member("apgd-t:steps=30,targets=3", "targeted", 2.2), wide(40, 10, 1.5, 3.0), FAB, SQUARE,
        ),
        "two from four": (wide_first(6), wide(20, 4, 2.2, 4.0, 2), TARGETED, wide(40, 10, 1.5, 3.0), FAB, SQUARE),
        "rk-2": ensembles.stages("rk-2", "L2"),
        "rk-3": ensembles.stages("rk-3", "L2"),
        "rk-4": ensembles.stages("rk-4", "L2"),
        "short starts": (
            RK_4_L2[0], member("soft_apgd:steps=20,start_radius=4,restarts=2", "second", 2.2, 4.0, NINE),
            member(f"{MARGIN},start_radius=4", "third", 1.5, 2.5, NINE),
            RK_4_L2[2]._replace(threshold=Threshold(Limits(1.0, 0.8))), wide(40, 10, 1.0, 1.5),
            member(f"{MARGIN},restarts=6,start_radius=4", "restarts", 0.4), SQUARE,
        ),
        "rk-6": ensembles.stages("rk-6", "L2"),
        "rk-7": RK_7_L2,
        "rk-9": ensembles.stages("rk-9", "L2"),
        "rk-10": ensembles.stages("rk-10", "L2"),
        "rk-11": ensembles.stages("rk-11", "L2"),
        "rk-12": ensembles.stages("rk-12", "L2"),
        "paced": (*RK_12_L2[:3], paced(RK_12_L2[3]), RK_12_L2[4], paced(RK_12_L2[5]), RK_12_L2[6]),
        "rk-13": ensembles.stages("rk-13", "L2"),
        "paced in the last ball": HALF_L2,
        "one start and two": ONE_AND_TWO,
        "rk-14, two starts": (
            RK_14_L2[0], paced(RK_13_L2[1]._replace(specification="soft_apgd:steps=20,start_radius=4,restarts=2"), 0.5),
            *RK_14_L2[2:],
        ),
        "rk-14": RK_14_L2,
        "race": (*RK_7_L2[:3], member("raced_apgd:steps=40", "targeted", 2.5), *RK_7_L2[4:]),
    },
    "L1": {
        "rk-1": ensembles.stages("rk-1", "L1"),
        "wide for second": (FIRST, wide(40, 10, 2.0, 2.0), TARGETED, LONG, FAB, SQUARE),
        "wide first": (
            wide_first(10), member("apgd-ce:steps=40,restarts=2", "second", 1.5, 2.0, NINE), TARGETED,
            wide(40, 16, 0.9, 2.0, 2), FAB, SQUARE,
        ),
        "fewer targets": (
            wide_first(10), member("apgd-ce:steps=40,restarts=2", "second", 1.0, 2.0, NINE),
            member("apgd-t:steps=30,targets=5", "targeted", 0.7), wide(40, 16, 0.5, 2.0, 2),
            member("fab-t:steps=30,targets=3", "fab", 0.3), SQUARE,
        ),
        "no restarts": (
            wide_first(10), member("apgd-ce:steps=40", "second", 1.0, 2.0, NINE),
            member("apgd-t:steps=30,targets=5", "targeted", 0.7), wide(40, 16, 0.5, 2.0),
            member("fab-t:steps=30,targets=3", "fab", 0.3), SQUARE,
        ),
        "rk-2": ensembles.stages("rk-2", "L1"),
        "rk-3": ensembles.stages("rk-3", "L1"),
        "rk-4": ensembles.stages("rk-4", "L1"),
        "one start more": (*RK_4_L1[:2], member(f"{MARGIN},start_radius=6", "third", 1.5, 2.5, NINE), *RK_4_L1[2:]),
        "short starts": (
            RK_4_L1[0], member(f"{MARGIN},start_radius=6,restarts=2", "second", 2.5, 3.5, NINE),
            member(MARGIN, "third", 1.5, 2.0, NINE), RK_4_L1[2]._replace(threshold=Threshold(Limits(1.0, 1.0))),
            wide(40, 16, 0.5, 1.0), member(f"{MARGIN},restarts=6", "restarts", 0.5), SQUARE,
        ),
        "rk-6": ensembles.stages("rk-6", "L1"),
        "rk-7": ensembles.stages("rk-7", "L1"),
        "rk-9": ensembles.stages("rk-9", "L1"),
        "rk-10": ensembles.stages("rk-10", "L1"),
        "rk-11": ensembles.stages("rk-11", "L1"),
        "rk-12": RK_12_L1,
        "paced in the last ball": HALF_L1,
        "plain starts, paced": (HALF_L1[0], paced(PLAIN_STARTS, 0.5), *HALF_L1[2:]),
        "rk-14": ensembles.stages("rk-14", "L1"),
        "plain starts": (RK_12_L1[0], PLAIN_STARTS, *RK_12_L1[2:]),
        "plain starts, farther": (
            RK_12_L1[0], PLAIN_STARTS._replace(threshold=Threshold(Limits(3.0, 5.0))), *RK_12_L1[2:],
        ),
    },
}  # fmt: skip


# Undefended networks, which robustkit trains itself.
DIGITS = tuple(
    Case(name, "digits", "Linf", "0.1", name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0"))
    for name in ("resnet18", "mobilenet_v3_small", "shufflenet_v2_x1_0", "squeezenet1_1", "regnet_y_400mf")
)


def registered(name: str, norm: str, design: tuple[Stage, ...]) -> str:
    """A name that `evaluate` accepts for a design."""
    key = f"design-{norm}-{name}".replace(" ", "-").replace(",", "").lower()
    ensembles.ENSEMBLES[key] = design
    return key


def left_alone(ours: list[Verdicts]) -> str:
    left = " ".join(str(len(each.robust)) for each in ours)
    return f"{left:>12} {mean([each.passes[i] for each in ours for i in sorted(each.robust)]):8.0f}"


def compared(ours: list[Verdicts], full: Verdicts) -> str:
    spent, theirs = per_survivor(ours, full)
    robust = " ".join(str(len(each.robust)) for each in ours)
    more = " ".join(str(len(full.robust - each.robust)) for each in ours)
    missed = " ".join(str(len(each.robust - full.robust)) for each in ours)
    return f"{robust:>12} {more:>12} {missed:>12} {spent:8.0f}   1/{theirs / max(spent, 1):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="folder for runs of autoattack")
    parser.add_argument("--only", default="", help="text in a case's network, norm or eps")
    parser.add_argument("--designs", default="", help="names, separated by semicolons; all without it")
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--start", type=int, default=0, help="number of the first correctly classified image")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--held-out", action="store_true", help="only the other networks; of designs that are final")
    parser.add_argument("--alone", action="store_true", help="do not run autoattack")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chosen = [name for name in options.designs.split(";") if name]
    for case in (*CASES, *DIGITS):
        if case.chosen == options.held_out or options.only not in " ".join(map(str, case)):
            continue
        if case.images == "digits":
            subject = digits(case.network, options.images)
        else:
            subject = subject_of(options.zoo, case, options.start, options.images)
        full = None if options.alone else verdicts(subject, case, "autoattack", 0, options.keep)
        title = f"\n{case.network} {case.norm} {case.eps}, {len(subject.x)} images"
        if full is None:
            print(f"{title}\n{'design':18} {'robust':>12} {'passes':>8}")
        else:
            print(f"{title}, autoattack {len(full.robust)}")
            print(f"{'design':18} {'robust':>12} {'only ours':>12} {'only theirs':>12} {'passes':>8}   in")
        for name, design in DESIGNS[case.norm].items():
            if not chosen or name in chosen:
                key = registered(name, case.norm, design)
                ours = [verdicts(subject, case, key, seed, None) for seed in range(options.seeds)]
                print(f"{name:18} {left_alone(ours) if full is None else compared(ours, full)}", flush=True)


if __name__ == "__main__":
    main()
