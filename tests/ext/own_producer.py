"""Another runtime's log, written down as a trace: an append that found no room, and one that did."""

from kvviz.ext import Trace, Writer


def record(room: int) -> Trace:
    """Two tokens whose rows go behind a cache of four rows that has room for ``room`` more."""
    row = 16 * 4
    w = Writer(f"room for {room}", "my runtime", "appends where there is room, else moves the cache")
    cache = w.value("cache", (4, 16), "float32", w.storage((4 + room) * row, origin="donated"))
    w.bind(cache, "donated")
    for token in range(2):
        rows = 5 + token
        w.begin_run(f"token {token}")
        new = w.value("row", (1, 16), "float32")
        w.op("NEW", [], [new])
        if token < room:
            grown = w.value("cache", (rows, 16), "float32", w.storage_of(cache))
            added = w.value("cache (row)", (1, 16), "float32", w.storage_of(cache), offset=(rows - 1) * row)
            w.op("APPEND", [cache, new], [added], reads=[new], writes=[added])
            w.op("VIEW", [added], [grown], reads=[])
        else:
            grown = w.value("cache", (rows, 16), "float32")
            w.op("MOVE", [cache, new], [grown], copied=(rows - 1) * row)
        cache = grown
    return w.finish([cache])
