"""Joins the processes that torchrun started into one group; a process that it did not start is alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from kgem.errors import ConfigError, PeerLost
from kgem.model.processes import ALONE, Processes

__all__ = ["join_processes"]

TIMEOUT = 600.0  # seconds that a process waits for another
LEAVING = timedelta(seconds=20)  # for the others to say that they have gone


@contextmanager
def join_processes() -> Iterator[Processes]:
    """This process and those that torchrun started with it, by its environment; they end together."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield ALONE
        return
    rank, timeout = int(os.environ["RANK"]), timedelta(seconds=_timeout())
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))  # the device "cuda" is this one
    try:
        store = next(iter(rendezvous("env://", timeout=timeout)))[0]
        store = PrefixStore(f"kgem/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        store.set_timeout(timeout)
        backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=timeout)
    except (RuntimeError, dist.DistError) as error:
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise PeerLost(
            f"process {rank} of {count} found the others not within {timeout.total_seconds():g} s "
            f"({str(error).splitlines()[0]})",
            where=where,
            remedy="check that torchrun runs on every machine with the same --nnodes and --rdzv-endpoint, and that the "
            "machines reach each other; KGEM_TIMEOUT=SECONDS waits longer",
        ) from error
    try:
        yield Processes(rank, count, store)
    finally:
        _leave(store, rank, count)


def _leave(store: Store, rank: int, count: int) -> None:
    """The first goes last: the store may live in its process."""
    with suppress(RuntimeError, dist.DistError):
        store.set(f"gone/{rank}", "")
        if rank == 0:
            store.wait([f"gone/{other}" for other in range(count)], LEAVING)
    with suppress(RuntimeError, dist.DistError, AssertionError):
        dist.destroy_process_group()


def _timeout() -> float:
    said = os.environ.get("KGEM_TIMEOUT", str(TIMEOUT))
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ConfigError(f"{said!r} is no number of seconds", where="KGEM_TIMEOUT", remedy="for example 600")
    return seconds
