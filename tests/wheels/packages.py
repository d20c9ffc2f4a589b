"""The packages whose wheels carry models: pinned, so that a table can be made again."""

from __future__ import annotations

PACKAGES = (
    "basic-pitch==0.4.0",
    "ddddocr==1.6.1",
    "faster-whisper==1.2.1",
    "magika==1.0.3",
    "nudenet==3.4.2",
    "openwakeword==0.4.0",
    "rapidocr==3.10.0",
    "rapidocr-onnxruntime==1.4.4",
    "silero-vad==6.2.3",
    "speechmos==0.0.1.1",
)
