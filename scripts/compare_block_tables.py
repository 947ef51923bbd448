"""vLLM's NumPy paths of a step beside `block_tables` (executor/examples): same shapes, medians, ratios.

Append: vLLM's own `MultiGroupBlockTable.add_row`. Slot mapping: the NumPy computation that vLLM's V1 block
table did on the host before it became a kernel (up to 0.19: repeat the rows, divide and take modulo of the
positions, take the block ids, multiply and add), a group at a time.
"""

import json
import statistics
import subprocess
import sys
import time

import numpy as np
import torch

BLOCK_SIZE = 16
WIDTH = 512


def median_ns(work, runs):
    times = []
    for _ in range(runs + 3):
        start = time.perf_counter_ns()
        work()
        times.append(time.perf_counter_ns() - start)
    return statistics.median(times[3:])


def tables_of(reqs, groups, tokens):
    from vllm.v1.worker.block_table import MultiGroupBlockTable

    names = MultiGroupBlockTable.__init__.__code__.co_varnames[: MultiGroupBlockTable.__init__.__code__.co_argcount]
    known = dict(
        max_num_reqs=reqs,
        max_model_len=WIDTH * BLOCK_SIZE,
        max_num_batched_tokens=tokens,
        pin_memory=False,
        device=torch.device("cpu"),
        block_sizes=[BLOCK_SIZE] * groups,
        kernel_block_sizes=[BLOCK_SIZE] * groups,
        max_num_blocks=[WIDTH] * groups,
    )
    return MultiGroupBlockTable(**{name: known[name] for name in names if name in known})


def main(ours):
    slow = False
    print(f"{'requests x groups':>18} {'path':>13} {'NumPy':>11} {'here':>10} {'ratio':>7}")
    for reqs, groups, ids, tokens in [(8, 4, 8, 8), (64, 20, 8, 8), (512, 20, 8, 8), (8, 20, 256, 1)]:
        here = json.loads(subprocess.check_output([ours, *map(str, (reqs, groups, ids, tokens))]))
        tables = tables_of(reqs, groups, reqs * tokens)
        new = [tuple([g + r + i for i in range(ids)] for g in range(groups)) for r in range(reqs)]
        runs = 51 if reqs < 100 else 15

        def append():
            for row in range(reqs):
                tables.add_row(new[row], row)

        rows = np.arange(reqs)
        counts = np.full(reqs, tokens)
        token = np.arange(reqs * tokens)
        positions = (token // tokens * 7 % (ids * BLOCK_SIZE) + token % tokens).astype(np.int64)
        grids = [tables[g].get_numpy_array() for g in range(groups)]
        slots = np.empty((groups, reqs * tokens), dtype=np.int64)

        def slot_mapping():
            owners = np.repeat(rows, counts)
            for g, grid in enumerate(grids):
                places = owners * grid.shape[1] + positions // BLOCK_SIZE
                numbers = grid.ravel()[places]
                np.add(numbers * BLOCK_SIZE, positions % BLOCK_SIZE, out=slots[g])

        for path, work, mine in [
            ("append", append, here["append_ns"]),
            ("slot mapping", slot_mapping, here["slot_mapping_ns"]),
        ]:
            theirs = median_ns(work, runs)
            ratio = theirs / mine
            slow |= ratio < 20
            print(f"{f'{reqs} x {groups}':>18} {path:>13} {theirs / 1e3:>8.1f} us {mine / 1e3:>7.2f} us {ratio:>7.1f}")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
