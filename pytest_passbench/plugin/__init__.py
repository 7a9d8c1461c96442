"""The entry point for pytest: options, and the switch that registers :mod:`pytest_passbench.plugin.active`.

A pytest run without ``--passbench`` imports no more than this module and :mod:`pytest_passbench.plugin.options`.
"""

from __future__ import annotations

import pytest

from pytest_passbench.plugin import options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    options.add(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the hooks that other plugins may implement."""
    from pytest_passbench.plugin import hookspecs

    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser, args: list[str]) -> None:
    """Complete the command line of a run that is resumed. Keep candidates' conftest.py files out.

    Raises pytest.UsageError for a misspelt option of the judge's, since pytest itself names no remedy.
    """
    options.check_names(args)
    if early_config.known_args_namespace.passbench_resume is not None:
        from pytest_passbench.plugin import invocation

        invocation.complete(early_config, parser, args)
    namespace = early_config.known_args_namespace
    if options.enabled(early_config, namespace):
        from pytest_passbench.plugin.conftest_guard import shield

        shield(early_config, options.folders(early_config, namespace))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Begin a run if ``--passbench`` is given."""
    if options.enabled(config):
        from pytest_passbench.plugin.active import start
        from pytest_passbench.plugin.conftest_guard import check_shielded

        check_shielded(config, options.folders(config))

        start(config)
    else:
        options.check_unused(config)


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of workers for ``-n auto``: one for each device, or for each group of cores."""
    if not options.enabled(config):
        return None
    from pytest_passbench.plugin import xdist

    settings = options.settings(config, paths=False)
    return xdist.workers(settings.device, settings.threads)
