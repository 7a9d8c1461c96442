"""The page of a compiler's profile: its chart and its tables, with the machine and the versions behind them."""

from __future__ import annotations

from markupsafe import Markup

from pytest_passbench.core.run import Run
from pytest_passbench.report import pages, run_text
from pytest_passbench.report.drawing import in_page
from pytest_passbench.report.profile import CompilerProfile, sentences, tables
from pytest_passbench.report.profile_chart import scatter

ENVIRONMENT, SETTINGS = ("cpu", "cores", "torch", "python"), ("pipeline", "threads")


def page(view: CompilerProfile, run: Run) -> str:
    """Return the page, complete in itself."""
    conditions = {name: run.environment[name] for name in ENVIRONMENT if name in run.environment}
    conditions |= {name: run.settings[name] for name in SETTINGS if name in run.settings}
    return pages.render(
        "profile.html",
        f"{view.compiler} beside eager",
        extent=run_text.extent(run),
        conditions=run_text.listing(conditions),
        chart=Markup(in_page(scatter(view))),
        tables=list(tables(view)),
        notes=list(sentences(view)),
    )
