"""What must hold in every trace, worked out again from its public records."""

from collections import defaultdict
from typing import Any


def problems(trace: Any) -> list[str]:
    """Every sentence says what does not hold."""
    return [*_memory(trace), *_totals(trace), *_decisions(trace), *_frames(trace)]


def places(trace: Any) -> dict[tuple[int, str], Any]:
    """Where each value of each frame lies: what a frame starts with, and what its steps made."""
    found = {(frame.id, bound.name): bound for frame in trace.frames for bound in frame.bindings}
    found.update({(step.frame_id, out.name): out for step in trace.steps for out in step.outs})
    return found


def _memory(trace: Any) -> list[str]:
    wrong: list[str] = []
    storages = {s.id: s for s in trace.storages}
    born = defaultdict(set)
    for s in storages.values():
        born[max(s.born, 0)].add(s.id)
        if s.freed is not None and s.freed < s.born:
            wrong.append(f"B{s.id} is freed at {s.freed}, before it is born at {s.born}")
    where, alive = places(trace), set()
    parents = {frame.id: frame.parent for frame in trace.frames}
    generation: dict[int, int] = {}
    once: set[int] = set()
    # A runtime may make a block larger for an output; then its capacity is that at the end.
    room = {id: s.capacity - sum(more for _, more in s.grew) for id, s in storages.items()}
    grown: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for s in storages.values():
        for index, more in s.grew:
            grown[index].append((s.id, more))
    for step in trace.steps:
        alive |= born[step.index] | {out.storage for out in step.outs if out.how == "pool"}
        for id, more in grown[step.index]:
            room[id] += more
        live = sum(room[id] for id in alive)
        if live != step.live_bytes:
            wrong.append(f"step {step.index}: {step.live_bytes} bytes live, by the storages {live}")
        # A node with a body reads what it is given when it is entered, before the steps of its body.
        entered = step.graph_node.subgraphs or step.graph_node.function
        for name in () if entered else step.inputs:
            frame = step.frame_id
            while frame is not None and (frame, name) not in where:
                frame = parents[frame]
            place = where.get((frame, name)) if name else None
            if place is not None and place.storage not in alive:
                wrong.append(f"step {step.index} reads {name} in B{place.storage}, which is free")
        for out in step.outs:
            if out.storage not in alive:
                wrong.append(f"step {step.index} puts {out.name} into B{out.storage}, which is free")
            before = generation.get(out.storage, 0)
            if out.generation < before or (out.how in ("in place", "append") and out.generation <= before):
                wrong.append(f"step {step.index}: B{out.storage}.{out.generation} after .{before} ({out.how})")
            generation[out.storage] = max(before, out.generation)
            if out.shape is not None and out.strides is None:
                end = out.offset + out.nbytes
                if out.offset < 0 or end > storages[out.storage].capacity:
                    wrong.append(f"step {step.index}: {out.name} reaches from {out.offset} to {end} in B{out.storage}")
        for id in step.freed:
            if id not in alive or (
                id in once and not any(o.storage == id for st in trace.steps for o in st.outs if o.how == "pool")
            ):
                wrong.append(f"step {step.index} frees B{id}, which is not alive")
            once.add(id)
        alive -= set(step.freed)
    return wrong


def _totals(trace: Any) -> list[str]:
    wrong = []
    for total, part in (("bytes_allocated", "allocated"), ("bytes_copied", "copied"), ("bytes_written", "written")):
        summed = sum(getattr(step, part) for step in trace.steps)
        if summed != getattr(trace, total):
            wrong.append(f"{total} is {getattr(trace, total)}, the steps' sum is {summed}")
        by_run = sum(getattr(run, total) for run in trace.runs)
        if by_run != getattr(trace, total):
            wrong.append(f"{total} is {getattr(trace, total)}, the runs' sum is {by_run}")
    steps = max((step.live_bytes for step in trace.steps), default=0)
    # Between two iterations of a loop both hold their iteration numbers, and under some policies their copies.
    loops = any(step.op_type in ("Loop", "Scan") for step in trace.steps)
    between = loops and trace.policy.name not in ("ideal", "never")
    if len(trace.steps) and (steps > trace.peak_bytes or (steps < trace.peak_bytes and not between)):
        wrong.append(f"peak is {trace.peak_bytes}, the steps' {max(step.live_bytes for step in trace.steps)}")
    for step in trace.steps:
        if min(step.allocated, step.copied, step.written) < 0 or step.copied > step.written:
            wrong.append(f"step {step.index}: {step.allocated} allocated, {step.copied} copied, {step.written} written")
    return wrong


def _decisions(trace: Any) -> list[str]:
    wrong = []
    where = places(trace)
    for step in trace.steps:
        decision, told = step.decision, f"step {step.index} ({step.op_type} {step.node})"
        if (decision.dispatch == "in_place") != bool(decision.taken):
            wrong.append(f"{told}: {decision.dispatch}, and {decision.taken} taken")
        for blocker in decision.blockers:
            # Such a runtime calls an op in place whose kernel then allocates all the same; that has its reasons.
            moved = trace.policy.name in ("ideal", "never")
            if moved and blocker.input and blocker.input in decision.taken:
                wrong.append(f"{told}: {blocker.input} is taken and blocked by {blocker.code}")
            if not blocker.message.strip() or not blocker.message.isprintable():
                wrong.append(f"{told}: {blocker.code} says nothing")
        outs = {out.name: out for out in step.outs}
        for output, name in (decision.shares or {}).items():
            here = where.get((step.frame_id, name))
            if here is not None and outs[output].storage != here.storage:
                wrong.append(f"{told}: {output} shares with {name}, but lies in B{outs[output].storage}")
        for out in step.outs:
            if out.how in ("in place", "append") and out.name not in (decision.shares or {}):
                wrong.append(f"{told}: {out.name} is {out.how}, but shares nothing")
        if trace.policy.name in ("ideal", "never") and decision.taken and step.allocated and len(step.outs) == 1:
            wrong.append(f"{told}: in place, and {step.allocated} bytes allocated")
    return wrong


def _frames(trace: Any) -> list[str]:
    wrong = []
    frames = {frame.id: frame for frame in trace.frames}
    for frame in trace.frames:
        above: tuple[str, ...] = ()
        if frame.parent is not None:
            turn = "" if frame.iteration is None else f":{frame.iteration}"
            above = (*frames[frame.parent].path, f"{frame.node.name}[{frame.attribute}{turn}]")
        if frame.path != above:
            wrong.append(f"frame {frame.id} has the path {frame.path}, by its parents {above}")
    for step in trace.steps:
        frame = frames[step.frame_id]
        if step.frame != frame.path or step.run != frame.run:
            wrong.append(f"step {step.index} says {step.frame}, run {step.run}; its frame {frame.path}, {frame.run}")
        if step.graph_node.index != step.node_index or step.graph_node not in frame.graph.nodes:
            wrong.append(f"step {step.index}: its node is none of its frame's graph")
    return wrong
