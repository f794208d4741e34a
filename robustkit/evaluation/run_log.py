"""What a run says about itself in its manifest: seconds per stage, and warnings."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from robustkit.classifier.randomized import ALPHA, FRESH, Randomized
from robustkit.errors import UserError
from robustkit.evidence.store import Store
from robustkit.host.progress import ProgressWatch
from robustkit.nethook.op_sites import GradientStop


class RunLog:
    """Notes of one model's part of a run.

    Args:
        store: with the manifest.
        model: name of the model.
        watch: is told each new warning.
    """

    def __init__(self, store: Store, model: str, watch: ProgressWatch) -> None:
        self.store, self.model, self.watch = store, model, watch

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Add the seconds of the context to those of the stage, also after an exception."""
        start = time.monotonic()
        try:
            yield
        finally:
            # An error of the evidence file here would hide the one that ended the stage.
            with suppress(UserError):
                self.add_seconds(stage, time.monotonic() - start)

    def add_seconds(self, stage: str, spent: float) -> None:
        """Add to the seconds of a stage."""
        seconds = self.store.manifest()["seconds"]
        key = f"{self.model} {stage}"
        self.store.set_manifest(seconds={**seconds, key: round(seconds.get(key, 0) + spent, 3)})

    def note_randomized(self, oracle: Randomized, *, begun: bool) -> None:
        """Keep how a randomized model is judged, which the tables need to know.

        Args:
            oracle: of the model.
            begun: whether there are rows of the model.

        Raises:
            UserError: those rows were judged in another way.
        """
        noted = self.store.manifest().get("randomized", {})
        setting = {"eot": oracle.eot, "draws": oracle.draws, "alpha": ALPHA, "fresh": FRESH}
        if begun and noted.get(self.model) != setting:
            raise UserError(
                f"The verdicts on {self.model} in this run folder come from a version of robustkit that judges "
                "randomized models in another way; give another --out."
            )
        self.store.set_manifest(randomized={**noted, self.model: setting})

    def note_bisection(self, attack: str, radii: int) -> None:
        """Keep at how many radii an attack looked for the nearest error."""
        noted = self.store.manifest().get("bisected", {})
        self.store.set_manifest(bisected={**noted, attack: radii})

    def note_gradient_stops(self, stops: Sequence[GradientStop]) -> None:
        """Keep which operations of the model's forward pass no gradient on."""
        noted = self.store.manifest().get("gradient_stops", {})
        texts = list(dict.fromkeys(stop.text for stop in stops))
        if texts:
            self.store.set_manifest(gradient_stops={**noted, self.model: texts})

    def warn(self, text: str) -> None:
        """Keep a warning, once, and tell the watch."""
        warnings = self.store.manifest()["warnings"]
        if text not in warnings:
            self.store.set_manifest(warnings=[*warnings, text])
            self.watch.say(text)
