"""Reads server logs: what a server really runs, whether it is ready, and why it failed.

The messages it knows are data, in `signatures.yaml`.
"""

from autotune.diagnosis.log_text import message_of
from autotune.diagnosis.requested import unheeded
from autotune.diagnosis.startup import progress
from autotune.diagnosis.verdict import diagnose

__all__ = ["diagnose", "message_of", "progress", "unheeded"]
