"""One evaluation: the request, the plan it leads to, and the run that carries it out."""
