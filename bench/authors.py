"""The command line of comparisons with the code of AutoAttack's authors, a checkout of fra31/auto-attack."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path


def parser(doc: str | None, networks: Iterable[str], *, images: int, seeds: int) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--zoo", type=Path, required=True, help="folder with zoo.py")
    parser.add_argument("--autoattack", type=Path, required=True, help="folder that contains the package autoattack")
    parser.add_argument("--only", help="networks of the zoo, with commas", default=",".join(networks))
    parser.add_argument("--norms", default="Linf,L2,L1")
    parser.add_argument("--images", type=int, default=images, help="correctly classified images per network")
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--csv", type=Path)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options; from here on the authors' package can be imported."""
    options = parser.parse_args()
    sys.path.insert(0, str(options.autoattack))
    return options
