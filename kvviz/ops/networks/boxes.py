"""Boxes in images: NonMaxSuppression."""

from __future__ import annotations

import numpy as np

from kvviz.errors import OpError
from kvviz.ops.numeric import scalar
from kvviz.ops.registry import op


@op("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes,
    scores,
    max_output_boxes_per_class=None,
    iou_threshold=None,
    score_threshold=None,
    *,
    center_point_box=0,
):
    """Triples (batch, class, box) of the best boxes that do not overlap a better one of their class. Boxes are (batch,
    n, 4): two opposite corners, or centre, width and height. Scores are (batch, classes, n)."""
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.ndim != 3:
        raise OpError(f"boxes of shape {boxes.shape} must be (batch, n, 4), scores of {scores.shape} 3-dimensional")
    if scores.shape[::2] != boxes.shape[:2]:
        raise OpError(f"scores of shape {scores.shape} do not fit boxes of shape {boxes.shape}")
    most = 0 if max_output_boxes_per_class is None else int(scalar(max_output_boxes_per_class, "the number of boxes"))
    limit = 0.0 if iou_threshold is None else scalar(iou_threshold, "iou_threshold")
    if not 0 <= limit <= 1:
        raise OpError(f"an iou_threshold of {limit} is not in [0, 1]")
    least = None if score_threshold is None else scalar(score_threshold, "score_threshold")
    found = []
    if most > 0:
        for batch, (low, high, area) in enumerate(zip(*_corners(boxes, center_point_box))):
            for kind, marks in enumerate(scores[batch]):
                best = _best(low, high, area, marks, most, np.float32(limit), least)
                found += [(batch, kind, box) for box in best]
    return np.array(found, np.int64).reshape(-1, 3)


def _corners(boxes, centred):
    if centred:
        half = boxes[..., 2:] / 2
        low, high = boxes[..., :2] - half, boxes[..., :2] + half
    else:
        low, high = np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])
    return low, high, (high - low).prod(-1)


def _best(low, high, area, marks, most, limit, least):
    """Indices of the boxes of one class that are kept, best first; the lower index comes first among equals."""
    order = np.argsort(-marks, kind="stable")
    if least is not None:
        order = order[marks[order] > np.float32(least)]
    kept: list[int] = []
    while order.size and len(kept) < most:
        box, order = int(order[0]), order[1:]
        kept.append(box)
        sides = np.maximum(np.minimum(high[order], high[box]) - np.maximum(low[order], low[box]), 0)
        common = sides.prod(-1)
        together = area[order] + area[box] - common
        overlap = (
            (common > 0) & (area[order] > 0) & (area[box] > 0) & (common / np.where(together > 0, together, 1) > limit)
        )
        order = order[~overlap]
    return kept
