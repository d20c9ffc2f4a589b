"""NumPy kernels, one file per family, and the table of what each op may alias, overwrite or append to."""

from importlib import import_module
from pkgutil import walk_packages

# Importing a family registers its kernels.
for _module in walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
