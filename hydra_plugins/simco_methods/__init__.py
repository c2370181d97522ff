"""Hydra plugin: brings the pack's methods and configs into solo-learn's Hydra scripts.

Hydra imports every plugin when any Hydra app starts, so nothing heavy may be imported here: the
methods are registered only where solo-learn has already been loaded.
"""

import sys

from hydra.core.config_search_path import ConfigSearchPath
from hydra.plugins.search_path_plugin import SearchPathPlugin


class SimcoMethodsPlugin(SearchPathPlugin):
    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        # Last, so that it adds config names and never shadows the app's own.
        search_path.append(provider="simco-methods", path="pkg://solo_configs")
        if "solo.methods" in sys.modules:
            from simco_methods.choice import check_host

            check_host("simco-methods")
            from simco_methods.methods import register

            register()
