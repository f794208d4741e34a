"""A run as something to read: a page for the browser, CSV for tools, a table for the terminal."""

from .ablation.page import AblationContext as AblationContext
from .ablation.page import write_ablation as write_ablation
from .ablation.terminal import print_ablation as print_ablation
from .diagnosis.page import DiagnosisContext as DiagnosisContext
from .diagnosis.page import write_diagnosis as write_diagnosis
from .diagnosis.terminal import print_diagnosis as print_diagnosis
from .evaluation.csv import write_csv as write_csv
from .evaluation.html import write_report as write_report
from .evaluation.terminal import print_table as print_table
from .trace.page import TraceContext as TraceContext
from .trace.page import write_trace as write_trace
from .trace.terminal import print_trace as print_trace
