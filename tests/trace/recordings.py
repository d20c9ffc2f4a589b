"""Two recordings written by hand, of runtimes that are not ours, for tests of every reader."""

import kvviz
from kvviz.trace.writer import Writer


def copy_into_view() -> kvviz.Trace:
    """Two tokens of a ggml decoder: a quantised cache, copies into views of it, names that repeat, one arena."""
    w = Writer("two tokens of a decoder", "ggml", "the order of the graph, and an arena for what it computes")
    weights = w.value("blk.0.attn_k.weight", (64, 64), "q8_0", w.storage(64 * 68, origin="weights"))
    cache = w.value("cache_k_l0", (4, 64), "q8_0", w.storage(4 * 68, origin="donated"))
    w.bind(weights, "weight")
    w.bind(cache, "donated")
    for token in range(2):
        w.begin_run(f"token {token}")
        x = w.value("inp_embd", (1, 64), "float32", w.storage(256, arena="compute", address=0))
        w.op("GET_ROWS", [], [x])
        k = w.value("Kcur-0", (1, 64), "float32", w.storage(256, arena="compute", address=256))
        w.op("MUL_MAT", [weights, x], [k])
        w.free(w.storage_of(x))
        row = w.value("cache_k_l0 (view)", (1, 64), "q8_0", w.storage_of(cache), offset=68 * token)
        w.op("VIEW", [cache], [row], reads=[])
        copy = w.value("cache_k_l0 (view) (copy)", (1, 64), "q8_0", w.storage_of(cache), offset=68 * token)
        w.op("CPY", [k, row], [copy], reads=[k], writes=[copy])
        keys = w.value("cache_k_l0 (view)", (token + 1, 64), "q8_0", w.storage_of(cache))
        w.op("VIEW", [cache], [keys], reads=[])
        scores = w.value("kq-0", (1, token + 1), "float32", w.storage(4 * token + 4, arena="compute", address=0))
        w.op("MUL_MAT", [keys, k], [scores])
        w.free(w.storage_of(k))
        w.free(w.storage_of(scores))
    return w.finish([scores])


def two_lanes() -> kvviz.Trace:
    """A device with a lane for transfers beside the one for ops; a tensor stays between programs, a free is refused."""
    w = Writer("two programs on a device", "device", "tensors stay on the device until they are let go")
    held = w.storage(8192, space="dram", arena="dram 0", address=0)
    first = w.value("tokens", (1024,), "float32", w.storage(4096, origin="caller"))
    second = w.value("next tokens", (1024,), "float32", w.storage(4096, origin="caller"))
    w.begin_run("program 0")
    there = w.value("tokens (dram)", (1024,), "float32", w.storage(4096, space="dram", arena="dram 0", address=8192))
    w.transfer(first, there, lane="transfer", start=0.0, end=4.0)
    cache = w.value("cache", (2048,), "float32", held)
    w.op("fill_cache", [there], [cache], lane="queue 0", start=4.0, end=9.0)
    w.begin_run("program 1")
    later = w.value(
        "next tokens (dram)", (1024,), "float32", w.storage(4096, space="dram", arena="dram 0", address=12288)
    )
    w.transfer(second, later, lane="transfer", start=5.0, end=8.0)
    w.free(w.storage_of(there), "its program is over")
    row = w.value("cache", (1024,), "float32", held, offset=4096)
    w.op("update_cache", [later, cache], [row], reads=[later], writes=[row], lane="queue 0", start=9.0, end=11.0)
    w.free(held, "a program that was submitted reads it", done=False)
    answer = w.value("logits", (16,), "float32", w.storage(64, space="l1", arena="l1 0", address=0))
    w.op("matmul", [cache, row], [answer], lane="queue 0", start=11.0, end=15.0)
    return w.finish([answer])
