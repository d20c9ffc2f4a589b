"""NumPy kernels, one file per family, and the table of what each op may alias, overwrite or append to."""

from importlib import import_module
from pkgutil import iter_modules

# Importing a family registers its kernels.
for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
