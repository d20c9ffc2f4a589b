"""The two models of reference counts, transition by transition (classic: to early 2026; holder: tt-metal #38101)."""

import numpy as np
import pytest

from kvviz.device import Device
from kvviz.device.device_layout import zero_copy
from kvviz.errors import DeviceError
from tests.device.programs import graph, numbers

BOTH = pytest.mark.parametrize("ownership", ["classic", "holder"])


def test_a_view_of_a_root_that_was_freed_by_force_says_that_it_is_allocated_in_the_holder_model() -> None:
    for ownership in ("classic", "holder"):
        device = Device(ownership=ownership)
        a = device.to_device(numbers((64, 128)))
        b = device.reshape(a, (8, 8, 128))
        device.deallocate(a, force=True)
        assert (a.is_allocated, b.is_allocated) == (False, ownership == "holder")  # tt-metal #53736
    with pytest.raises(DeviceError, match="only its own holder is asked"):
        device.to_host(b)


@BOTH
def test_an_output_that_is_the_input_is_the_same_wrapper_and_its_free_kills_the_cache(ownership: str) -> None:
    device = Device(ownership=ownership)
    program = device.program(graph([("Add", "cache x", "y")], {"cache": (4, 4), "x": (4, 4)}, ["cache", "y"]))
    cache, x = device.to_device(numbers((4, 4))), device.to_device(numbers((4, 4), 1))
    outputs = device.submit(program, {"cache": cache, "x": x})
    assert outputs["cache"].wrapper is cache.wrapper and cache.is_allocated
    assert not x.is_allocated
    # copies of a handle share retain and the tensor
    again = device.duplicate(cache)
    again.retain = True
    device.deallocate(outputs["cache"])
    assert cache.retain and again.wrapper is cache.wrapper and again.is_allocated
    cache.retain = False
    device.deallocate(again)
    assert not cache.is_allocated


@BOTH
def test_an_output_that_is_a_view_of_an_input_follows_the_model(ownership: str) -> None:
    device = Device(ownership=ownership)
    shape = np.array([16, 128], np.int64)
    program = device.program(graph([("Reshape", "x to", "y")], {"x": (16, 128)}, ["y"], to=shape))
    x = device.to_device(numbers((16, 128)))
    y = device.submit(program, {"x": x})["y"]
    assert np.array_equal(device.to_host(y), numbers((16, 128)))
    # the deallocation of the argument is not forced: holder leaves both, classic lets go of the argument alone
    assert x.is_allocated == (ownership == "holder") and y.is_allocated
    assert sum(device.live_bytes.values()) == 16 * 128 * 4


def test_a_view_is_made_where_the_last_axis_stays_and_of_tiles_where_whole_tiles_do() -> None:
    assert zero_copy((64, 128), (8, 8, 128), tiled=False)
    assert not zero_copy((64, 128), (128, 64), tiled=False)
    assert not zero_copy((64, 128), (8, 8, 128), tiled=True)
    assert zero_copy((64, 128), (2, 32, 128), tiled=True)
    assert zero_copy((2, 8, 128), (1, 2, 8, 128), tiled=True)
