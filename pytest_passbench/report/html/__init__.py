"""``report.html``: a run as one page for a browser, which needs no network.

``page(run)`` returns it. ``model`` has the values of its template, ``details`` those of its script. ``bundle`` has
the library that draws the charts. ``templates`` has the page's own template, style and script.
"""

from pytest_passbench.report.html.render import NAME, page

__all__ = ["NAME", "page"]
