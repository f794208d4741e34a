"""Results to read: pages for the browser, CSV files for tools, tables for the terminal."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ablation.page import AblationContext as AblationContext
    from .ablation.page import write_ablation as write_ablation
    from .ablation.terminal import print_ablation as print_ablation
    from .comparison.csv import write_comparison as write_comparison
    from .comparison.page import write_comparison_page as write_comparison_page
    from .comparison.terminal import comparison_text as comparison_text
    from .comparison.terminal import print_comparison as print_comparison
    from .diagnosis.page import DiagnosisContext as DiagnosisContext
    from .diagnosis.page import write_diagnosis as write_diagnosis
    from .diagnosis.terminal import print_diagnosis as print_diagnosis
    from .evaluation.card_markdown import write_card as write_card
    from .evaluation.corruptions import write_corruptions as write_corruptions
    from .evaluation.csv import write_csv as write_csv
    from .evaluation.files import write_files as write_files
    from .evaluation.forms import usual_name as usual_name
    from .evaluation.forms import write_form as write_form
    from .evaluation.gate_markdown import gate_markdown as gate_markdown
    from .evaluation.html import write_report as write_report
    from .evaluation.plotted import plot as plot
    from .evaluation.shown import shown_image as shown_image
    from .evaluation.shown import shown_table as shown_table
    from .evaluation.terminal import print_table as print_table
    from .evaluation.terminal import print_tables as print_tables
    from .evaluation.terminal import table_text as table_text
    from .evaluation.training_figure import read_history as read_history
    from .evaluation.verification import derived_files as derived_files
    from .trace.page import TraceContext as TraceContext
    from .trace.page import write_trace as write_trace
    from .trace.terminal import print_trace as print_trace

# Loaded on first use: a command prints one kind of report, and torch alone takes seconds to import.
_PUBLIC = {
    "AblationContext": "ablation.page",
    "DiagnosisContext": "diagnosis.page",
    "TraceContext": "trace.page",
    "comparison_text": "comparison.terminal",
    "derived_files": "evaluation.verification",
    "gate_markdown": "evaluation.gate_markdown",
    "plot": "evaluation.plotted",
    "print_ablation": "ablation.terminal",
    "print_comparison": "comparison.terminal",
    "print_diagnosis": "diagnosis.terminal",
    "print_table": "evaluation.terminal",
    "print_tables": "evaluation.terminal",
    "read_history": "evaluation.training_figure",
    "shown_image": "evaluation.shown",
    "shown_table": "evaluation.shown",
    "table_text": "evaluation.terminal",
    "print_trace": "trace.terminal",
    "write_ablation": "ablation.page",
    "write_card": "evaluation.card_markdown",
    "write_comparison": "comparison.csv",
    "write_comparison_page": "comparison.page",
    "write_corruptions": "evaluation.corruptions",
    "write_csv": "evaluation.csv",
    "write_diagnosis": "diagnosis.page",
    "write_files": "evaluation.files",
    "usual_name": "evaluation.forms",
    "write_form": "evaluation.forms",
    "write_report": "evaluation.html",
    "write_trace": "trace.page",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
