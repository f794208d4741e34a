"""What data sets have in common that are made of another one."""

from dataclasses import dataclass

from .dataset import Dataset, NumberedImages, UsualThreat


@dataclass(frozen=True, eq=False, repr=False)
class DerivedImages(NumberedImages):
    """A data set with the name, the classes and the usual threats of another one."""

    whole: Dataset

    @property
    def name(self) -> str:
        """As in `whole`."""
        return self.whole.name

    @property
    def class_names(self) -> tuple[str, ...]:
        """As in `whole`."""
        return self.whole.class_names

    @property
    def threats(self) -> tuple[UsualThreat, ...]:
        """As in `whole`."""
        return self.whole.threats
