"""``report.html``: a run as one page for a browser, which needs no network.

``page(run)`` returns it. ``model`` has the values of its template, ``rows`` and ``subgraphs`` those of its script.
``render`` puts them together. ``templates`` has the template, style and script.
"""

from pytest_passbench.report.html.render import NAME, page

__all__ = ["NAME", "page"]
