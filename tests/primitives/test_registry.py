import json
import re
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from robustkit.attacks import APGD, FGSM, PGD, Square

from robustkit.errors import UserError
from robustkit.primitives import ensembles
from robustkit.primitives.registry import (
    VARIANTS,
    build,
    classes,
    described,
    modules_in,
    names,
    parsed,
    spelled,
    title,
)


@pytest.mark.parametrize("name", classes())
def test_the_files_name_is_the_attacks_name(name):
    assert classes()[name].__name__.lower() == name.replace("_", "")
    assert classes()[name].__module__.startswith("robustkit.attacks.")
    assert classes()[name].__module__.endswith(f".{name}")


@pytest.mark.parametrize("name", names())
def test_every_name_builds_in_one_of_its_norms(name):
    base = VARIANTS.get(name, (name, {}))[0]

    assert isinstance(build(name, classes()[base].norms[0], 1), classes()[base])


@pytest.mark.parametrize("name", classes())
def test_every_hyper_parameter_but_the_radius_has_a_default(name):
    assert [field.name for field in fields(classes()[name]) if field.default is MISSING] == ["eps"]


@pytest.mark.parametrize("ensemble", ensembles.names())
@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_every_member_of_an_ensemble_builds(ensemble, norm):
    assert all(build(member, norm, "0.5").ball.eps == 0.5 for member in ensembles.members(ensemble, norm))


def test_a_specification_sets_hyper_parameters():
    attack = build("PGD:steps=10,loss=dlr,step-size=1e-2,random_start=False", "linf", "8/255")

    assert attack == PGD("8/255", "linf", steps=10, loss="dlr", step_size=0.01, random_start=False)


def test_none_and_numbers_are_read_as_such():
    assert build("pgd:step_size=none,steps=3,random_start=no", "Linf", 0.1) == PGD(0.1, steps=3, random_start=False)
    assert build("pgd:step_size=0.5", "Linf", 0.1).step_size == 0.5


def test_a_fraction_is_a_number_and_its_name_has_no_slash():
    assert build("pgd:steps=5,step_size=2/255", "Linf", 0.1) == PGD(0.1, steps=5, step_size=2 / 255)
    assert title("pgd:steps=5,step_size=2/255") == f"pgd:steps=5,step_size={2 / 255}"


def test_a_layer_whose_name_is_a_number_stays_a_name():
    assert build("ila:layer=0", "Linf", 0.1).layer == "0"
    assert build("ila:layer=1.10", "Linf", 0.1).layer == "1.10"
    assert build("ila:layer=none", "Linf", 0.1).layer is None


def test_a_variant_is_its_attack_with_presets_that_can_be_overridden():
    assert build("apgd-t:steps=7", "Linf", 0.1) == APGD(0.1, steps=7, loss="dlr", targets=9)
    assert build("apgd-t:targets=3", "Linf", 0.1) == APGD(0.1, loss="dlr", targets=3)


@pytest.mark.parametrize(
    ("specification", "sentence"),
    [
        ("pdg", "did you mean .*pgd"),
        ("apgdt", "did you mean .*apgd-t"),
        ("pgd:step=3", "did you mean .*steps"),
        ("pgd:eps=3", "eps of pgd is the threat model's.* give --eps"),
        ("pgd:steps", "'steps' is not KEY=VALUE"),
        ("pgd:steps=ten", "steps must be a whole number of at least 1.*, not 'ten'"),
        ("pgd:steps=1.5", "whole number"),
        ("pgd:steps=0", "at least 1"),
        ("pgd:steps=true", "whole number"),
        ("pgd:restarts=0", "restarts must be"),
        ("pgd:loss=5", "no loss called '5'"),
        ("pgd:loss=hinge", "no loss called 'hinge'"),
        ("pgd:random_start=maybe", "random_start must be"),
        ("pgd:step_size=nan", "step_size must be"),
        ("pgd:step_size=-1", "step_size must be"),
        ("pgd:step_size=1/0", "step_size must be .*, not '1/0'"),
        ("mifgsm:decay=inf", "decay must be"),
        ("square:p_init=5", "p_init"),
        ("square:queries=1", "at least 2"),
        ("pgd:steps=99999999999", "steps must be at most 1,000,000"),
        ("pgd:step_size=inf", "step_size must be below"),
        ("", "no attack called ''"),
        ("autoattack:version=rand", "autoattack is an ensemble and not one attack"),
    ],
)
def test_a_bad_specification_is_refused_with_the_fix(specification, sentence):
    with pytest.raises(UserError, match=sentence):
        build(specification, "Linf", 0.1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("AA", "did you mean autoattack?"),
        ("c&w", "did you mean cw?"),
        ("SquareAttack", "did you mean square?"),
        ("PGD-20", "did you mean pgd:steps=20?"),
        ("pgdl2", "did you mean pgd in the norm L2?"),
        ("linf-bim", "did you mean bim in the norm Linf?"),
        ("pgd,fgsm", "give each attack on its own: -a pgd -a fgsm."),
        ("BB", "did you mean brendel_bethge?"),
        ("R-FGSM", "did you mean fgsm:random_start=yes?"),
        ("SpatialTransformation", "did you mean grid?"),
        ("adversarial-patch", "did you mean adversarial_patch?"),
        ("square5000", "did you mean square or "),  # which has no steps
    ],
)
def test_names_of_other_libraries_lead_to_the_attack(name, meant):
    with pytest.raises(UserError, match=re.escape(f"There is no attack called '{name.lower()}'; {meant}")):
        build(name, "Linf", 0.1)


def test_a_norm_that_an_attack_does_not_know_is_refused():
    with pytest.raises(UserError, match="Square has no L0 form; it has Linf, L2, L1; for L0 take sparse_rs, "):
        build("square", "L0", 5)
    with pytest.raises(UserError, match=r"SparseRS has no L2 form; it has L0, .*, so set the norm to one of these"):
        build("sparse_rs", "L2", 5)


@pytest.mark.parametrize(("text", "value"), [("no", False), ("off", False), ("yes", True), ("TRUE", True)])
def test_booleans_may_be_yes_no_on_and_off(text, value):
    assert build(f"fgsm:random_start={text}", "Linf", 0.1) == FGSM(0.1, random_start=value)


def test_hyper_parameters_may_be_numpy_numbers():
    assert PGD(np.float32(0.5), steps=np.int64(3)).cost.forwards == 4


@pytest.mark.parametrize("name", classes())
def test_a_plain_attack_is_spelled_by_its_name(name):
    attack = build(name, classes()[name].norms[0], 1)

    assert spelled(attack) == name


@pytest.mark.parametrize(
    "attack",
    [
        PGD(0.1, steps=7, step_size=1e-05, random_start=False, restarts=3, loss="dlr"),
        APGD(0.1, targets=2, rho=0.1 + 0.2),
        Square(0.1, queries=9, p_init=1.0),
    ],
)
def test_what_is_spelled_builds_the_same_attack(attack):
    assert build(spelled(attack), "Linf", 0.1) == attack


def test_a_description_has_every_hyper_parameter_but_the_threat_model():
    assert described(Square(0.1, queries=9)) == {
        "attack": "Square", "restarts": 1, "targets": 0, "queries": 9, "p_init": 0.8,
        "shrink_over": None,
    }  # fmt: skip


def test_two_attacks_of_one_name_in_two_folders_are_an_error(tmp_path, monkeypatch):
    for folder in ("", "gradient", "score"):
        (tmp_path / "twins" / folder).mkdir(exist_ok=True)
        (tmp_path / "twins" / folder / "__init__.py").write_text("")
    (tmp_path / "twins" / "gradient" / "same.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    assert modules_in([str(tmp_path / "twins")], "twins") == {"same": "twins.gradient.same"}

    (tmp_path / "twins" / "score" / "same.py").write_text("")
    with pytest.raises(UserError, match=r"twins\.gradient\.same and twins\.score\.same have one name"):
        modules_in([str(tmp_path / "twins")], "twins")


OWN = """
from __future__ import annotations
from dataclasses import dataclass
from robustkit.attacks import BIM, PGD
from robustkit.primitives.ascent import Ascent, SteepestAscent

@dataclass(frozen=True)
class Mine(SteepestAscent):
    layer: str | None = None

    def start(self, trials):
        return trials.x

class Half(Ascent): pass
"""
SECOND = """
class Other(PGD):
    def __init__(self, eps): super().__init__(eps)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    return tmp_path / "mine.py"


@pytest.mark.parametrize("where", ["", ":Mine", ":Mine:steps=5,layer=1.0", ":steps=5,layer=1.0"])
def test_an_attack_of_the_user_is_built_by_path(file, where):
    attack = build(f"{file}{where}", "L2", "0.5")
    values = "steps=5,layer=1.0" if "=" in where else ""

    assert type(attack).__name__ == "Mine"
    assert (attack.ball.norm, attack.ball.eps) == ("L2", 0.5)
    assert (attack.steps, attack.layer) == ((5, "1.0") if values else (10, None))
    assert parsed(f"{file}{where}").name == "mine.mine"
    assert title(f"{file}{where}") == spelled(attack) == ("mine.mine:" + values).rstrip(":")
    assert replace(attack, eps=0.1) == build(f"{file}{where}", "L2", 0.1)


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        (":Gone", r"has no class 'Gone'; write .*mine\.py:NAME, with NAME one of: Mine, Other"),
        (":dataclass", "has no class 'dataclass'"),
        (":Half", "Half in .* is not complete; define init, step"),
        ("", r"has several attacks; write .*mine\.py:NAME, with NAME one of: Mine, Other"),
        (":Other", "Other in .* cannot be built: TypeError: .*; it must accept eps="),
        (":Mine:stesp=3", "no hyper-parameter of mine.mine called 'stesp'; did you mean steps"),
        (":Mine:steps=0", "steps must be a whole number of at least 1"),
    ],
)
def test_an_attack_that_cannot_be_built_by_path_says_why(file, where, sentence):
    file.write_text(OWN + SECOND)

    with pytest.raises(UserError, match=sentence):
        build(f"{file}{where}", "Linf", 0.1)


@pytest.mark.parametrize(
    ("text", "where", "sentence"),
    [
        ("class Mine: pass", ":Mine", "Mine in .* is not an attack; derive it from"),
        ("class Mine: pass", "", "has no complete attack; derive a class from"),
        ("import torhc", ":Mine", "cannot be imported: ModuleNotFoundError"),
    ],
)
def test_a_file_without_an_attack_says_why(file, text, where, sentence):
    file.write_text(text)

    with pytest.raises(UserError, match=sentence):
        build(f"{file}{where}", "Linf", 0.1)


def test_two_versions_of_an_own_attack_are_described_apart(file):
    one, same = (described(build(f"{file}:Mine", "Linf", 0.1)) for _ in range(2))
    file.write_text(OWN.replace("return trials.x", "return 1 - trials.x"))

    assert one == same != described(build(f"{file}:Mine", "Linf", 0.1))


@dataclass(frozen=True)
class Odd(PGD):
    weights: torch.Tensor | None = None
    layers: tuple[str, ...] = ()
    table: dict[str, int] = field(default_factory=dict)


def test_any_attack_object_is_spelled_and_described():
    weights, other = torch.arange(3.0), torch.arange(3.0) + 1
    objects = [
        Odd(0.1), Odd(0.1, weights=weights), Odd(0.1, weights=other), Odd(0.1, weights=weights.double()),
        Odd(0.1, layers=("a", "b")), Odd(0.1, layers=("a,b",)), Odd(0.1, table={"a": 1}), Odd(0.1, loss="ce", steps=3),
        Odd(0.1, weights=torch.nn.Linear(1, 1)), Odd(0.1, weights=lambda x: x), Odd(0.1, weights=lambda x: x + 1),
    ]  # fmt: skip

    assert spelled(objects[0]) == "odd"
    assert spelled(objects[7]) == "odd:steps=3,loss=ce"
    assert len({spelled(attack) for attack in objects}) == len(objects)
    assert len({json.dumps(described(attack)) for attack in objects}) == len(objects)
    assert spelled(Odd(0.1, weights=weights.clone())) == spelled(objects[1])


def test_an_own_attack_does_not_take_the_name_of_a_shipped_one():
    namesake = type("PGD", (PGD,), {"__module__": "study.mine"})

    assert spelled(namesake(0.1)) == "mine.pgd"


def test_all_attacks_can_be_imported_with_a_star():
    """`from robustkit.attacks import *` left out every attack that no import names, such as GeoDA."""
    found: dict[str, object] = {}
    exec("from robustkit.attacks import *", found)

    assert {kind.__name__: kind for kind in classes().values()}.items() <= found.items()
