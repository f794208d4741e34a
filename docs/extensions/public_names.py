"""References to classes by where they are defined, resolved to where they are documented.

`robustkit.Classifier` is documented under its public name, and signatures know it as
`robustkit.classifier.classifier.Classifier`. Types of other packages and of modules that have no page stay plain text.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment


def setup(app: Sphinx) -> dict[str, Any]:
    """Resolve what Sphinx does not find by itself."""
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True}


def _resolve(app: Sphinx, env: BuildEnvironment, node: Any, content: nodes.Element) -> nodes.Node | None:
    if node.get("refdomain") != "py" or app.builder.format != "html":
        return None
    target = str(node["reftarget"])
    if not target.startswith("robustkit."):
        return content  # a type of Python or of another package
    last = target.rpartition(".")[2]
    public = [name for name in env.domains.python_domain.objects if name.rpartition(".")[2] == last]
    if len(public) != 1:
        return content
    return env.domains.python_domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], public[0], node, content
    )
