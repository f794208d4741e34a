"""The members of every ensemble: each version of the default, and AutoAttack.

A member has one name in all norms; which attack it is may depend on the norm.
"""

from robustkit.primitives.measure import Measure
from robustkit.primitives.stage import Limits, Stage, Threshold

# AutoAttack: Croce & Hein 2020, arXiv:2003.01690, with the budgets of the authors' code. Its windows shrink on a
# schedule of 10,000 queries, whatever the budget.
_FAB_T, _SQUARE = "fab-t:steps=100,targets=9", "square:queries=5000,shrink_over=10000"
_LAST = (_FAB_T, _SQUARE)


def _near(*limits: float) -> Threshold:
    return Threshold(Limits(*limits))


# Budgets go to the images that are near to another class. A name stands for these budgets for ever: better ones get the
# next number. Chosen on some networks, reported on others; see bench/designs.py and bench/designs.md.
_NINE, _FOUR = Measure(classes=9), Measure(classes=4)
_FIRST = Stage("apgd-ce:steps=5", "first", measures=_NINE)
_TARGETED = Stage("apgd-t:steps=30,targets=9", "targeted", _near(1.0, 1.0), for_noise=False)
_LONG = Stage("apgd-ce:steps=100", "long", _near(0.5, 0.9), measures=_NINE)
_NEAREST = Stage("square:queries=1000", "square", _near(0.2, 0.2), for_noise=False)


def _fab(below: float, if_bent: float) -> Stage:
    return Stage("fab-t:steps=30,targets=3", "fab", _near(below, if_bent), for_noise=False)


def _guided(below: float, restarts: int = 1) -> Stage:
    again = f",restarts={restarts}" if restarts > 1 else ""
    return Stage(f"guided_square:steps=300{again}", "guided", _near(below, below), for_noise=False)


def _long_square(below: float) -> Stage:
    return Stage("square:queries=2500,shrink_over=5000", "square", _near(below, below), for_noise=False)


_RK_1_LINF = (
    _FIRST,
    Stage("apgd-ce:steps=20", "second", _near(1.0, 1.5), measures=_NINE),
    _TARGETED,
    _LONG,
    _fab(0.2, 0.2),
    _NEAREST,
)
# Where gradients end in front of a flat loss, jumps between corners of the ball lead on; what they do not find needs a
# long Square.
_RK_3_LINF = (
    *_RK_1_LINF[:4],
    _guided(0.3, restarts=2),
    _long_square(0.15),
)
# In L2 and L1 gradients of networks that were trained in Linf can fail far from the boundary, too.
_RK_1_L2 = (
    _FIRST,
    Stage("apgd-ce:steps=20", "second", _near(1.0, 4.0), measures=_NINE),
    _TARGETED,
    _LONG,
    _fab(0.5, 4.0),
    _NEAREST,
)
_RK_1_L1 = (
    _FIRST,
    Stage("apgd-ce:steps=40", "second", _near(2.0, 2.0), measures=_NINE),
    _TARGETED,
    Stage("apgd-ce:steps=100", "long", _near(0.9, 1.2), measures=_NINE),
    _fab(0.5, 0.9),
    _NEAREST,
)
# Searches that begin in larger balls find what gradients near the image do not show; in Linf they find nothing more.
_RK_2_L2 = (
    Stage("apgd-ce:steps=20,start_radius=6", "first", measures=_NINE),
    Stage("apgd-ce:steps=20,start_radius=4,restarts=3", "second", _near(2.2, 4.0), measures=_NINE),
    _TARGETED,
    Stage("apgd-ce:steps=40,start_radius=10", "long", _near(1.0, 2.0), measures=_NINE),
    _fab(0.5, 0.5),
    _NEAREST,
)
_RK_2_L1 = (
    Stage("apgd-ce:steps=20,start_radius=10", "first", measures=_NINE),
    Stage("apgd-ce:steps=40,restarts=2", "second", _near(2.0, 3.5), measures=_NINE),
    Stage("apgd-t:steps=30,targets=5", "targeted", _near(1.2, 1.2), for_noise=False),
    Stage("apgd-ce:steps=40,start_radius=16,restarts=2", "long", _near(0.9, 2.0), measures=_NINE),
    _fab(0.5, 0.5),
    _NEAREST,
)

_RK_3_L2 = (*_RK_2_L2[:4], _guided(0.5), _NEAREST)
_RK_3_L1 = (*_RK_2_L1[:4], _guided(0.5), _NEAREST)


# Gradients that see past kinks lead on in front of a flat loss.
def _soft(restarts: int, below: float) -> Stage:
    text = f"soft_apgd:steps=50,restarts={restarts},loss=margin"
    return Stage(text, "restarts", _near(below, below), for_noise=False)


# An error is often in the second or third likeliest class, which no gradient shows as near.
def _aimed(targets: int, *limits: float) -> Stage:
    text = f"soft_apgd:steps=30,loss=dlr,targets={targets}"
    return Stage(text, "targeted", _near(*limits), for_noise=False, targets_at_least=3)


_RK_4_LINF = (
    _FIRST,
    Stage("soft_apgd:steps=20", "second", _near(1.0, 1.5), measures=_NINE),
    _aimed(9, 1.0, 1.2),
    Stage("apgd-ce:steps=100", "long", _near(0.1, 0.7), measures=_NINE),
    _soft(3, 0.25),
    _long_square(0.04),
)
# Errors far from where a gradient bends are found where following it backfires, and hardly elsewhere.
_RK_5_LINF = (
    _FIRST,
    Stage("soft_apgd:steps=20", "second", _near(2.0, 1.5), measures=_NINE),
    _aimed(9, 1.0, 0.6, 1.1),
    Stage("apgd-ce:steps=100", "long", _near(0.1, 0.1, 0.7), measures=_NINE),
    *_RK_4_LINF[4:],
)
_RK_4_L2 = (
    _RK_2_L2[0],
    Stage("soft_apgd:steps=20,start_radius=4,restarts=3", "second", _near(2.2, 4.0), measures=_NINE),
    _aimed(9, 1.0, 1.0),
    _RK_2_L2[3],
    _soft(2, 0.5),
    _NEAREST,
)
_RK_4_L1 = (
    _RK_2_L1[0],
    Stage("soft_apgd:steps=40,restarts=2", "second", _near(2.0, 3.5), measures=_NINE),
    _aimed(5, 1.2, 1.2),
    _RK_2_L1[3],
    _soft(2, 0.5),
    _NEAREST,
)


# Starts in place of steps: 20 steps on the margin break as many late images as 50. And ratios that were measured at the
# best points of two soft searches tell far images better: few of those above a third that bend still fall.
def _margin(label: str, limits: Threshold, setting: str = "", measures: Measure | None = None) -> Stage:
    return Stage(f"soft_apgd:steps=20,loss=margin{setting}", label, limits, measures=measures, for_noise=False)


_RK_6_LINF = (
    _FIRST,
    _RK_5_LINF[1],
    _margin("third", _near(1.0, 0.6, 1.1), measures=_NINE),
    _aimed(4, 1.0, 0.35, 1.1),
    Stage("apgd-ce:steps=100", "long", _near(0.1, 0.1, 0.8), measures=_NINE),
    _margin("restarts", _near(0.2, 0.2), ",restarts=12"),
    _long_square(0.02),
)
# In L2 and L1 short starts do not replace the long ones; only the nearest images get one more.
_RK_6_L2 = (
    *_RK_4_L2[:2],
    _margin("third", _near(0.5, 0.5), ",start_radius=4", measures=_NINE),
    *_RK_4_L2[2:],
)
_RK_6_L1 = (
    *_RK_4_L1[:2],
    _margin("third", _near(0.5, 0.5), ",start_radius=6", measures=_NINE),
    *_RK_4_L1[2:],
)


# The ratio at the clean image tells far images, too: hardly any above 2 broke, however flat the loss at the best point,
# and many below 1.4 did, whatever the later ratios. In Linf and L2 measuring four classes in place of nine changed no
# verdict. A measure after the long run sent images to the restarts that do not break there.
def _placed(close: float, *limits: float) -> Threshold:
    return Threshold(Limits(*limits), 1.4, Limits(close, close), far=2.0)


_RK_7_LINF = (
    _FIRST._replace(measures=_FOUR._replace(clean_below=2.0)),
    Stage("soft_apgd:steps=20", "second", _placed(2.0, 2.0, 2.0), measures=_FOUR),
    _margin("third", _placed(2.0, 1.5, 0.6, 1.5), measures=_FOUR),
    Stage(
        "soft_apgd:steps=20,loss=dlr,targets=4", "targeted", _placed(2.0, 1.5, 0.35, 1.5), for_noise=False,
        targets_at_least=4,
    ),
    Stage("apgd-ce:steps=100", "long", Threshold(Limits(0.0, 0.0), 1.4, Limits(0.0, 0.0, 0.8))),
    *_RK_6_LINF[5:],
)  # fmt: skip
# In L2 targets along gradients that are hardly softened break images that soft ones do not.
_RK_7_L2 = (
    *(stage._replace(measures=_FOUR) for stage in _RK_6_L2[:3]),
    Stage(
        "soft_apgd:steps=30,loss=dlr,targets=4,widest=0.003,narrowest=0.003", "targeted", _near(1.7, 1.7),
        for_noise=False, targets_at_least=4,
    ),
    _RK_6_L2[4]._replace(measures=_FOUR),
    *_RK_6_L2[5:],
)  # fmt: skip

# What a threshold or a mask in front of the network hides, no ratio shows: the values at which the gradient is zero are
# moved by themselves, once. Nothing else changed, so verdicts on networks that hide nothing are those of rk-7.
_RK_8_LINF = (_FIRST._replace(measures=_FOUR._replace(clean_below=2.0, unseen=True)), *_RK_7_LINF[1:])


def _looking(first: Stage, **more: bool) -> Stage:
    assert first.measures is not None
    return first._replace(measures=first.measures._replace(**more))


# At the clean image, where the whole radius is free, a gradient that hides values or turns within a short step is seen
# in all norms. Of images that are far, too: what is hidden looks far.
_RK_9_LINF = (_looking(_RK_7_LINF[0], clean_gradient=True), *_RK_7_LINF[1:])
_RK_9_L2 = (_looking(_RK_7_L2[0], clean_gradient=True), *_RK_7_L2[1:])
_RK_9_L1 = (_looking(_RK_6_L1[0], clean_gradient=True), *_RK_6_L1[1:])

# What a gradient leaves out or reverses at some values of the image shows where values move at random.
_RK_10_LINF = (_looking(_RK_9_LINF[0], random_step=True), *_RK_9_LINF[1:])
_RK_10_L2 = (_looking(_RK_9_L2[0], random_step=True), *_RK_9_L2[1:])
_RK_10_L1 = (_looking(_RK_9_L1[0], random_step=True), *_RK_9_L1[1:])

# A network that is rough at the scale of such a step looks wrong there, too, and right at a shorter one.
_RK_11_LINF = (_looking(_RK_10_LINF[0], shorter_step=True), *_RK_10_LINF[1:])
_RK_11_L2 = (_looking(_RK_10_L2[0], shorter_step=True), *_RK_10_L2[1:])
_RK_11_L1 = (_looking(_RK_10_L1[0], shorter_step=True), *_RK_10_L1[1:])


def _without_blind_trust(stages: tuple[Stage, ...]) -> tuple[Stage, ...]:
    return tuple(
        stage._replace(
            all_if_replaced=True, measures=None if stage.measures is None else stage.measures._replace(vanishing=True)
        )
        for stage in stages
    )


# Gradients that replace others are no derivatives: behind votes and lookups they led to the boundary and still
# predicted that it is far, and the members that break such images left them out. So they did where the gradient was
# next to zero: it predicted that every class is far. Verdicts on other networks are those of rk-11.
_RK_12_LINF = _without_blind_trust(_RK_11_LINF)
_RK_12_L2 = _without_blind_trust(_RK_11_L2)
_RK_12_L1 = _without_blind_trust(_RK_11_L1)


# A search that breaks an image takes most of its lead early: of the searches that leave more than 0.4 of the margin
# after a fifth of their steps, 0.16 after two fifths and so on, hardly any does. Giving them up pays for a race where
# gradients backfire; elsewhere the third search hardly found anything that the others do not find. On rough networks
# slow searches do break images: so the second search runs to its end, and the targeted ones have more time.
def paced(stage: Stage, pace: float = 0.4) -> Stage:
    """The member with searches that are given up at a pace."""
    return stage._replace(specification=f"{stage.specification},pace={pace}")


_RK_13_LINF = (
    *_RK_12_LINF[:2],
    _RK_12_LINF[2]._replace(
        specification="raced_apgd:steps=100,pace=0.4",
        threshold=Threshold(Limits(0.0, 0.0, 1.0), 1.4, Limits(0.0, 0.0, 1.4), far=2.0),
    ),
    paced(_RK_12_LINF[3], 0.6),
    *map(paced, _RK_12_LINF[4:6]),
    _RK_12_LINF[6],
)
# In L2, behind fast waves, searches that lag do break images.
_RK_13_L2 = (*_RK_12_L2[:3], paced(_RK_12_L2[3], 0.7), *_RK_12_L2[4:])


# A pace in the last ball saves up to a quarter of the queries of searches from larger balls, and loses hardly an
# example. In L2 the ratio tells far images as well after one start as after three, and the race finds most of what the
# other two starts and the targets find. Behind fast waves restarts are needed that stay in the ball and run to their
# end.
_RK_14_L2 = (
    _RK_13_L2[0]._replace(specification="apgd-ce:steps=14,start_radius=6,pace=0.5"),
    _RK_13_L2[1]._replace(specification="soft_apgd:steps=20,start_radius=4,pace=0.5"),
    _RK_13_L2[2]._replace(specification=_RK_13_LINF[2].specification, threshold=_near(1.7, 1.7)),
    _RK_13_L2[3]._replace(threshold=_near(1.0, 1.0)),
    paced(_RK_13_L2[4], 0.5),
    _RK_13_L2[5]._replace(specification="soft_apgd:steps=20,loss=margin,restarts=8"),
    _RK_13_L2[6]._replace(threshold=_near(0.1, 0.1)),
)


def _with_four_classes(stage: Stage) -> Stage:
    return stage if stage.measures is None else stage._replace(measures=stage.measures._replace(classes=4))


# In L1, where there is no race, fewer starts leave more images.
_RK_14_L1 = (*(_with_four_classes(paced(stage, 0.5)) for stage in _RK_12_L1[:6]), _RK_12_L1[6])

ALIASES = {"default": "rk-14"}

ENSEMBLES: dict[str, tuple[str | Stage, ...]] = {
    "rk-14": _RK_13_LINF,
    "rk-13": _RK_13_LINF,
    "rk-12": _RK_12_LINF,
    "rk-11": _RK_11_LINF,
    "rk-10": _RK_10_LINF,
    "rk-9": _RK_9_LINF,
    "rk-8": _RK_8_LINF,
    "rk-7": _RK_7_LINF,
    "rk-6": _RK_6_LINF,
    "rk-5": _RK_5_LINF,
    "rk-4": _RK_4_LINF,
    "rk-3": _RK_3_LINF,
    "rk-2": _RK_1_LINF,
    "rk-1": _RK_1_LINF,
    "autoattack": ("apgd-ce:steps=100", "apgd-t:steps=100,targets=9", *_LAST),
    "autoattack-plus": (
        "apgd-ce:steps=100,restarts=5",
        "apgd-dlr:steps=100,restarts=5",
        "fab:steps=100,restarts=5",
        _SQUARE,
        "apgd-t:steps=100,targets=9",
        _FAB_T,
    ),
    "autoattack-rand": ("apgd-ce:steps=100", "apgd-dlr:steps=100"),
}

# Members in a norm where they are others.
IN_NORM: dict[tuple[str, str], tuple[str | Stage, ...]] = {
    ("rk-14", "L2"): _RK_14_L2,
    ("rk-14", "L1"): _RK_14_L1,
    ("rk-13", "L2"): _RK_13_L2,
    ("rk-13", "L1"): _RK_12_L1,
    ("rk-12", "L2"): _RK_12_L2,
    ("rk-12", "L1"): _RK_12_L1,
    ("rk-11", "L2"): _RK_11_L2,
    ("rk-11", "L1"): _RK_11_L1,
    ("rk-10", "L2"): _RK_10_L2,
    ("rk-10", "L1"): _RK_10_L1,
    ("rk-9", "L2"): _RK_9_L2,
    ("rk-9", "L1"): _RK_9_L1,
    ("rk-8", "L2"): _RK_7_L2,
    ("rk-8", "L1"): _RK_6_L1,
    ("rk-7", "L2"): _RK_7_L2,
    ("rk-7", "L1"): _RK_6_L1,
    ("rk-6", "L2"): _RK_6_L2,
    ("rk-6", "L1"): _RK_6_L1,
    ("rk-5", "L2"): _RK_4_L2,
    ("rk-5", "L1"): _RK_4_L1,
    ("rk-4", "L2"): _RK_4_L2,
    ("rk-4", "L1"): _RK_4_L1,
    ("rk-3", "L2"): _RK_3_L2,
    ("rk-3", "L1"): _RK_3_L1,
    ("rk-2", "L2"): _RK_2_L2,
    ("rk-2", "L1"): _RK_2_L1,
    ("rk-1", "L2"): _RK_1_L2,
    ("rk-1", "L1"): _RK_1_L1,
    # Croce & Hein 2021, arXiv:2103.01208: five restarts, five targets.
    ("autoattack", "L1"): ("apgd-ce:steps=100,restarts=5", "apgd-t:steps=100,targets=5", *_LAST),
}
