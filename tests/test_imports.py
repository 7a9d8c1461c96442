"""Imports between modules: no cycles, and the contracts of pyproject.toml; and a checkout used as it is."""

from __future__ import annotations

import graphlib
import re
import subprocess
import sys

import grimp
import pytest
from importlinter.cli import lint_imports

from support.paths import ROOT


def test_no_module_imports_itself_by_way_of_others():
    graph = grimp.build_graph("pytest_passbench", cache_dir=None)
    imported = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}
    order = graphlib.TopologicalSorter(imported)
    try:
        assert list(order.static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"a circle of imports: {' -> '.join(error.args[1])}")


def test_rooms_keep_to_their_contracts(capsys):
    assert lint_imports(no_cache=True) == 0, capsys.readouterr().out


def test_the_page_of_the_design_has_every_room_and_no_other():
    page = (ROOT / "docs/design.md").read_text(encoding="utf-8")
    tree = page.partition("## The tree")[2].partition("## Where is")[0]
    rooms = {path.parent.name for path in (ROOT / "pytest_passbench").glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", tree, re.M)) == rooms


BARE = """
import importlib.metadata as metadata, sys
found = metadata.distributions
metadata.distributions = lambda **named: (d for d in found(**named) if d.name != "pytest-passbench")
import pytest
command = ["-q", "--passbench", "--candidate=candidates/no-match", "--collect-only", "-k", "silu-mul-e747"]
sys.exit(pytest.main(command))
"""


@pytest.mark.slow
def test_a_checkout_that_nobody_installed_judges():
    told = subprocess.run([sys.executable, "-c", BARE], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "tasks/text/silu-mul-e747.task.yaml::silu-mul-e747[no-match]" in told.stdout
