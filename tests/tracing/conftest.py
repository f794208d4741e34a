"""Pages of traces without what takes longest to draw."""

import pytest
from robustkit.reports.trace.figures import TraceFigures


@pytest.fixture
def undrawn(monkeypatch):
    """Pages have neither figures nor pictures."""
    monkeypatch.setattr("robustkit.reports.trace.figures.charts", lambda *_: TraceFigures(None, None, []))
    monkeypatch.setattr("robustkit.reports.trace.page.sheets", lambda *_: [])
