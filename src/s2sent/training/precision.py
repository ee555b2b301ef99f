"""Whether this machine can train in bfloat16: tried in a child process, for a wrong answer kills the process."""

from __future__ import annotations

import subprocess
import sys

import torch

_TRIAL = """
import torch
layer = torch.nn.Linear(64, 64)
with torch.autocast("cpu", torch.bfloat16):
    loss = torch.nn.functional.scaled_dot_product_attention(*[layer(torch.randn(2, 4, 16, 64))] * 3).sum()
loss.backward()
"""


def bf16_problem(device: torch.device) -> str | None:
    """Return why bf16 cannot be used here; None if it can.

    Some CPUs report AMX and die on it with an illegal instruction, which no process can catch.
    """
    if device.type == "cuda":
        return None if torch.cuda.is_bf16_supported() else "this GPU has no bfloat16"
    if device.type != "cpu":
        return None
    trial = subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True, check=False)
    if trial.returncode == 0:
        return None
    why = f"signal {-trial.returncode}" if trial.returncode < 0 else f"exit code {trial.returncode}"
    return f"bfloat16 arithmetic kills a process on this CPU ({why})"
