"""The location of an app, so that another process can import it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import msgspec

from bide.core.errors import SetupError
from bide.server.registry import Registry

in_child = False  # whether this process is a handler child

MAIN = "__bide_main__"  # so that a child does not run the block `if __name__ == "__main__"`


def reject_in_child(what: str) -> None:
    """Raise SetupError in a handler child, which must not start `what`."""
    if in_child:
        raise SetupError(
            f"a handler child tried to start {what}, because importing the module of the app starts one: "
            'move that code under `if __name__ == "__main__":`'
        )


class AppLocation(msgspec.Struct, frozen=True):
    """A module (or the path of a script) and the name of the app in it."""

    module: str
    attribute: str = "app"
    path: str | None = None
    search: tuple[str, ...] = ()

    def load(self) -> Registry:
        """Import the app. SetupError if the module or the app does not exist."""
        sys.path[:0] = [folder for folder in self.search if folder not in sys.path]
        module = self._script() if self.path is not None else self._module()
        found = getattr(module, self.attribute, None)
        if not isinstance(found, Registry):
            apps = sorted(n for n, v in vars(module).items() if isinstance(v, Registry))
            hint = f"; it has {', '.join(apps)}" if apps else ": write `app = bide.App()`"
            raise SetupError(f"{self.module} has no app named {self.attribute!r}{hint}")
        return found

    def _module(self) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            if error.name is not None and self.module.split(".")[0] == error.name.split(".")[0]:
                raise SetupError(
                    f"no module {self.module!r} in {Path.cwd()}: "
                    "write MODULE:app with the module name that you would import"
                ) from None
            raise

    def _script(self) -> ModuleType:
        if MAIN in sys.modules:
            return sys.modules[MAIN]
        spec = importlib.util.spec_from_file_location(MAIN, str(self.path))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MAIN] = module
        spec.loader.exec_module(module)
        return module


def parse(target: str) -> AppLocation:
    """Parse `MODULE:app` of the command line; the attribute defaults to `app`."""
    module, _, attribute = target.partition(":")
    if module.endswith(".py"):
        raise SetupError(
            f"{target} is a file name: write the module that you would import, {module[:-3]}:app"
        )
    return AppLocation(module, attribute or "app", search=(str(Path.cwd()),))


def locate(app: Registry) -> AppLocation:
    """Find the module variable that holds an app; search the modules of its handlers first."""
    homes = [kind.fn.__module__ for kind in app.kinds.values()]
    for name in [*homes, *sys.modules]:
        module = sys.modules.get(name)
        for attribute, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
            if value is app:
                if name == "__main__":
                    path = getattr(module, "__file__", None)
                    if path is None:
                        continue
                    folder = str(Path(path).resolve().parent)
                    return AppLocation(MAIN, attribute, str(Path(path).resolve()), (folder,))
                return AppLocation(name, attribute, search=tuple(sys.path))
    raise SetupError(
        "the app is not a global variable of a module, so handler children cannot import it: "
        "write `app = bide.App()` at the top level of a module"
    )
