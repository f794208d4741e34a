"""Verdicts on finished runs: which models differ, and whether a run passes a gate. No model is needed."""
