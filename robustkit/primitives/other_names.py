"""Names by which attacks are known elsewhere, and what to write here: only for the sentence that refuses a name."""

import re
from collections.abc import Collection

from robustkit.errors import UserError, unknown

# In lower case, letters and digits alone, without "attack".
_KNOWN_AS = {
    "aa": "autoattack", "adversarialpatch": "adversarial_patch", "bandit": "bandits", "bb": "brendel_bethge",
    "basiciterative": "bim", "basiciterativemethod": "bim", "brendelbethge": "brendel_bethge", "carlini": "cw",
    "carliniwagner": "cw", "cw2": "cw", "di2fgsm": "difgsm", "dim": "difgsm", "eaden": "ead", "elasticnet": "ead",
    "eot": "eotpgd", "fastgradient": "fgsm", "fastgradientmethod": "fgsm", "fastgradientsignmethod": "fgsm",
    "ffgsm": "fgsm:random_start=yes", "gn": "gaussian_noise", "hsj": "hopskipjump", "hsja": "hopskipjump",
    "logit": "mifgsm:loss=logit", "mdi2fgsm": "difgsm", "mdmt": "md:targets=9", "madry": "pgd", "mim": "mifgsm",
    "momentum": "mifgsm", "momentumiterative": "mifgsm", "mtpgd": "multitargeted", "multitarget": "multitargeted",
    "projectedgradientdescent": "pgd", "rfgsm": "fgsm:random_start=yes", "saliencymap": "jsma", "sifgsm": "sinifgsm",
    "sim": "sinifgsm", "simbadct": "simba:basis=dct", "simbapixel": "simba:basis=pixel",
    "slide": "pgd in the norm L1", "spatial": "grid", "spatialtransformation": "grid",
    "sparsel1descent": "pgd in the norm L1", "tidim": "tifgsm:diversity=0.5", "tim": "tifgsm", "uap": "universal",
}  # fmt: skip
_NORMS = {"linf": "Linf", "l2": "L2", "l1": "L1", "l0": "L0"}
_NORM = "|".join(_NORMS)
_STEPS = re.compile(r"(?P<name>.*?[a-z])[-_ ]?(?P<steps>\d{1,6})")
_IN_NORM = re.compile(rf"(?P<name>.*?)[-_ ]?(?P<last>{_NORM})|(?P<first>{_NORM})[-_ ]?(?P<rest>.+)")


def unknown_attack(name: str, names: Collection[str], with_steps: Collection[str]) -> UserError:
    """The error for the name of no attack, with what was probably meant.

    Args:
        name: in lower case.
        names: of all attacks and ensembles.
        with_steps: those attacks that have `steps`.
    """
    meant = _meant(name, names, with_steps)
    return UserError(f"There is no attack called {name!r}; {meant}") if meant else unknown("attack", name, names)


def _meant(name: str, names: Collection[str], with_steps: Collection[str]) -> str:
    if name.endswith((".npz", ".safetensors")):
        return (
            "robustkit evaluate judges the examples in a file, robustkit.attack those of robustkit.load_examples(FILE)."
        )
    several = [each.strip() for each in name.split(",")]
    if len(several) > 1 and all(each in names for each in several):
        return f"give each attack on its own: {' '.join(f'-a {each}' for each in several)}."
    other = _here(name, names)
    if other:
        return f"did you mean {other}?"
    in_norm = _IN_NORM.fullmatch(name)
    if in_norm and (other := _here(in_norm["name"] or in_norm["rest"] or "", names)):
        return f"did you mean {other} in the norm {_NORMS[in_norm['last'] or in_norm['first']]}?"
    steps = _STEPS.fullmatch(name)
    if steps and (other := _here(steps["name"], names)) in with_steps:
        return f"did you mean {other}:steps={steps['steps']}?"
    return ""


def _here(name: str, names: Collection[str]) -> str:
    """What an attack is called here; "" for an unknown one."""
    plain = re.sub(r"[^a-z0-9]", "", name).removesuffix("attack")
    found = _KNOWN_AS.get(plain) or next((each for each in names if re.sub(r"[-_]", "", each) == plain), "")
    return found if plain else ""
