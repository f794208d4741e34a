import subprocess
import sys

import pytest

from robustkit import reports


@pytest.mark.parametrize("name", reports.__all__)
def test_every_public_name_leads_to_what_it_names(name: str) -> None:
    assert getattr(reports, name).__name__ == name


def test_importing_the_reports_imports_no_torch() -> None:
    check = "import robustkit.reports, sys; sys.exit('torch' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
