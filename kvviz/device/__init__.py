"""A simulated accelerator as a producer of traces: tensors that live there between programs.

`load_ttnn` reads what a compiler for one says, without running it.

Its facts are those of tt-mlir's runtime and of TTNN; each file names what it follows.
"""

from kvviz.device.accelerator import Device
from kvviz.device.device_layout import Layout
from kvviz.device.device_program import Binary, DeviceProgram
from kvviz.device.device_warnings import DeviceWarning
from kvviz.device.handles import Handle
from kvviz.device.kv_updates import BlockTable
from kvviz.device.simulated_time import Cost
from kvviz.device.ttnn.ttnn_program import TtnnModule, load_ttnn
from kvviz.errors import DeviceError

__all__ = [
    "Binary",
    "BlockTable",
    "Cost",
    "Device",
    "DeviceError",
    "DeviceProgram",
    "DeviceWarning",
    "Handle",
    "Layout",
    "TtnnModule",
    "load_ttnn",
]
