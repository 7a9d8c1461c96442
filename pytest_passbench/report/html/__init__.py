"""``report.html``: a run as one page for a browser, which needs no network.

``page(run)`` returns it. ``model`` has what the page says, ``details`` what its script shows of each subgraph,
``bundle`` the library that draws the charts, and ``templates`` the page's own template, style and script.
"""

from pytest_passbench.report.html.render import NAME, page

__all__ = ["NAME", "page"]
