"""A measured runner makes the calls of one block after another, and announces the addresses of the outputs.

The judge stops it except between "go" and "done". Everything between the two is timed.
"""

from __future__ import annotations

import gc
import socket
import traceback
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import torch

from pytest_passbench.protocol import (
    DONE,
    FLAG_EMPTY,
    FLAG_NATIVE,
    GO,
    OUTCOME_OK,
    OUTCOME_RAISED,
    send,
)
from pytest_passbench.runner import memory
from pytest_passbench.runner.engine import loaded
from pytest_passbench.runner.native_graph import NativeBlock, empty_block
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.pages import MappedPages, Slot
from pytest_passbench.suite.batching import close_levels
from pytest_passbench.walls import harden, seccomp


class PythonBlock:
    """Up to ``calls`` calls on this runner's inputs.

    ``mutated`` are the inputs that eager changes in place. Each call gets a private copy of them, made inside the
    block. The copies cost all arms the same. The empty block, whose time is subtracted, makes them too. After the
    call, the copies count as further outputs.
    """

    #: True if each depth of the stack has Python objects of its own, so that a rehearsal has to run at each.
    has_objects_at_depths = True

    def __init__(
        self, call: Callable[..., Any], pages: MappedPages, calls: int, mutated: tuple[int, ...], outputs: int
    ) -> None:
        self.call, self.slots, self.mutated = call, pages.slots[:calls], mutated
        self.tables = OutputTables(len(self.slots), outputs + len(mutated))
        self.results: list[Any] = []
        self.copies = [tuple(slot[i].clone() for i in mutated) for slot in self.slots] if mutated else []
        #: The address of the first slot's inputs, and further addresses and numbers for the judge.
        self.inputs, self.places = pages.address, dict[str, int]()
        self._layout = pages.layout

    def step(self, _flags: int, _calls: int) -> bool:
        """Do a step that only a device needs, and that is not timed. Return False if the flags ask for none."""
        return False

    def close(self) -> None:
        """Release what the process would otherwise keep. On the CPU, the end of the process releases everything."""

    def run(self, calls: int) -> None:
        """Make the calls and describe their outputs in the tables."""
        self.results = self._calls(self.call, calls)
        self.tables.write(self.results)

    def forget(self) -> None:
        """Free the last block's outputs, so that their memory is used again."""
        self.results = []

    def run_native_empty(self, calls: int) -> None:
        """Have the engine make calls that do nothing but describe as many outputs as a call has."""
        self._native_empty.run(calls)

    @cached_property
    def _native_empty(self) -> NativeBlock:
        engine = loaded()
        if engine is None:
            raise RuntimeError("an arm without the engine was asked for its empty block")
        block = empty_block(engine, self._layout, self.tables.width)
        block.place(self.inputs, self.tables)
        return block

    def run_empty(self, calls: int) -> None:
        """Run the same block around a call that returns earlier outputs."""
        outputs = self.results[0][: len(self.results[0]) - len(self.mutated)]
        call = lambda *_inputs: outputs  # noqa: E731 - as short as a call can be
        self.tables.write(self._calls(call, calls))

    def _calls(self, call: Callable[..., Any], calls: int) -> list[Any]:
        """Return the results of calls. The private copies of inputs are among them."""
        if not self.mutated:
            return [call(*slot) for slot in self.slots[:calls]]
        results = []
        for slot, copies in zip(self.slots[:calls], self.copies, strict=False):
            inputs = self._with_copies(slot, copies)
            outputs = call(*inputs)
            results.append((*outputs, *copies) if type(outputs) is tuple else outputs)
        return results

    def _with_copies(self, slot: Slot, copies: Slot) -> list[torch.Tensor]:
        inputs = list(slot)
        for index, copy in zip(self.mutated, copies, strict=True):
            copy.copy_(slot[index])
            inputs[index] = copy
        return inputs


class EngineBlock(PythonBlock):
    """A block whose calls the engine makes, on inputs that nothing changes in place."""

    has_objects_at_depths = False

    def __init__(self, native: NativeBlock, pages: MappedPages, calls: int, outputs: int) -> None:
        super().__init__(lambda *_inputs: (), pages, calls, (), outputs)
        self._native = native
        native.place(self.inputs, self.tables)

    def run(self, calls: int) -> None:
        """Make the calls and describe their outputs in the tables. Raises MemoryError."""
        self._native.run(calls)

    def run_empty(self, calls: int) -> None:
        """Run the engine's empty block."""
        self.run_native_empty(calls)


def serve(
    channel: socket.socket,
    block: PythonBlock,
    filter: seccomp.MeasuredFilters | None,
    threads: int,
    spacer: memory.Spacer,
    rehearsal: int = 0,
) -> None:
    """Run a block of ``rehearsal`` calls, announce the tables, and run blocks until the judge hangs up.

    Raises RuntimeError if the kernel does not take the process's filter.
    """
    harden.dumpable()
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)
    if filter is not None:
        filter.install(threads)
    gc.disable()
    hello = {"status": "ready", "pages": block.inputs, **block.tables.addresses()}
    run_at = memory.at_depths(partial(_serve_block, block, spacer))
    with torch.no_grad():
        if rehearsal:
            run_at[-1](rehearsal, 0)  # a failure is reported by the blocks that follow
            if block.has_objects_at_depths:
                for run in run_at[:-1]:
                    run(0, FLAG_EMPTY)
        send(channel, {**hello, **block.places})
        while data := channel.recv(GO.size):
            nonce, calls, flags, depth = GO.unpack(data)
            outcome = run_at[depth](calls, flags)
            if filter is not None:
                filter.settle()
            channel.send(DONE.pack(nonce, calls, outcome))


def _serve_block(block: PythonBlock, spacer: memory.Spacer, depth: int, calls: int, flags: int) -> int:
    try:
        if block.step(flags, calls):
            return OUTCOME_OK
        if flags & FLAG_EMPTY:
            spacer.take(depth)
            empty = block.run_native_empty if flags & FLAG_NATIVE else block.run_empty
            empty(calls)
        else:
            block.forget()
            spacer.take(depth)
            block.run(calls)
    except BaseException:
        block.tables.say(traceback.format_exc())
        close_levels()
        return OUTCOME_RAISED
    return OUTCOME_OK
