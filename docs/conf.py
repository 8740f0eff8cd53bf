"""How Sphinx builds the site: pages in Markdown, the reference from the docstrings."""

import re
import sys
from importlib import import_module
from pathlib import Path

import jaxtyping  # noqa: F401  # with it, signatures show shapes
from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import selective_backprop as sb

FOLDER = Path(__file__).parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent)]  # for pictures and trials, and for reproductions

project = "selective-backprop"
author = "The selective-backprop authors"
copyright = f"2026 {author}"
release = version = sb.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"{project} {release}"
html_show_sphinx = False
html_copy_source = False
exclude_patterns = ["pictures/**"]  # pages that others include

myst_enable_extensions = ["deflist"]
myst_disable_syntax = ["myst_line_comment"]  # a line of prose may begin with "% "
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_preserve_defaults = True  # as written, not as repr() has it
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_custom_sections = ["Source"]
default_role = "literal"  # docstrings write code in single backticks
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

# The site is built without a network, so links into other projects' pages are no dead links.
nitpick_ignore = [  # not public yet
    ("py:class", "selective_backprop._distributed.group.Alone"),
    ("py:class", "selective_backprop._distributed.group.Group"),
    ("py:class", "selective_backprop._step.selective_step.AbstractReuse"),
]
nitpick_ignore_regex = [(r"py:.*", r"(?!selective_backprop\.).*")]

PUBLIC = {  # `Context` is documented as the scorers'
    name: f"{module.__name__}.{name}"
    for module in (sb, sb.selectors, sb.scorers, sb.experimental, sb.guide)
    for name in module.__all__
}


def link_to_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Node
) -> nodes.Node | None:
    """Point a private path of a public name to where the reference documents it."""
    target = node.get("reftarget", "")
    public = PUBLIC.get(target.rpartition(".")[2])
    if public is None or not target.startswith("selective_backprop."):
        return None
    return env.get_domain("py").resolve_xref(
        env, node["refdoc"], app.builder, "obj", public, node, content
    )


class Documented(Directive):
    """Show the docstrings of a module's names, each with an option of autodoc or without.

    They are written as `Name` or `Name[option=value]`.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        module = import_module(self.arguments[0])
        lines = [f".. currentmodule:: {module.__name__}", ""]
        words = " ".join(self.content)
        for name, option, value in re.findall(r"(\w+)(?:\[([\w-]+)=([\w,]+)\])?", words):
            found = getattr(module, name)
            kind = "class" if isinstance(found, type) else "function"
            if kind == "class" and issubclass(found, Exception):
                kind = "exception"
            lines += [f".. auto{kind}:: {name}", *([f"   :{option}: {value}"] * bool(option)), ""]
        held = nodes.Element()
        self.state.nested_parse(StringList(lines, "reference"), self.content_offset, held)
        return held.children


def draw_pictures(app: Sphinx) -> None:
    """Draw the pictures that the pages show, before these are read."""
    from evidence import draw_figures, draw_pages
    from pictures import FOLDER, draw_all

    draw_all()
    draw_figures(FOLDER)
    draw_pages(FOLDER)


def setup(app: Sphinx) -> None:
    """Register what this file adds to Sphinx."""
    app.add_directive("documented", Documented)
    app.connect("builder-inited", draw_pictures)
    app.connect("missing-reference", link_to_public_name)
