"""Whole runs on the MNIST network of the tutorials, some of whose layers round by the place in the batch."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Torch and MKL as on a processor without AVX-512, where two adversarial examples of this network once differed.
AVX2 = {"PYTHONPATH": str(ROOT), "MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}


@pytest.mark.slow
def test_evidence_is_equal_for_batches_of_1_7_and_64_and_after_a_kill(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from exactness_runs import Command, difference, images_of, prepare

    prepare(tmp_path, *images_of(None), 48)
    whole, single, seven, killed = (
        Command(tmp_path, name, size, 2, AVX2) for name, size in (("64", 64), ("1", 1), ("7", 7), ("killed", 7))
    )
    seconds = whole.run()
    killed.kill([seconds / 2])

    for other in (single, seven, killed):
        other.run()
        assert difference(whole.out, other.out).startswith("equal")
