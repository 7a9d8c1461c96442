"""Runs for tests of the reports. They are made up: no figure in them was measured."""

from __future__ import annotations

import math
import random

from pytest_passbench.core.record import ArmResult, Finding, PassReport, Record, Speed
from pytest_passbench.core.run import Run
from support.made_records import run_of, speed_of

OPERATORS = ("add", "mul", "softmax", "gelu", "layer_norm", "mean", "pow", "rsqrt", "silu", "dropout", "to", "view")
DTYPES = ("float32", "float16", "bfloat16")
MODELS = ("transformers/gpt_neox (2 layers, hidden_size=2048, num_attention_heads=16, intermediate_size=8192",
          "diffusers/StableCascadeUNet (in_channels=16, out_channels=16, block_out_channels=(512, 512)",
          "timm/convnext_tiny (depths=(3, 3, 9, 3), dims=(96, 192, 384, 768)")  # fmt: skip
TASKS, SUBGRAPHS, MEAN_ROUNDS = 200, 2060, 210  # rounds: as a run of the lite suite had them on average
WIDTH = 0.03


def random_speed(
    rng: random.Random, ratio: float, verdict: str = "", rounds: int = MEAN_ROUNDS, width: float = WIDTH
) -> Speed:
    """Return a made-up speed with about so many rounds, in pairs of about 12."""
    pairs = [
        [rng.gauss(math.log(ratio), 4 * width) for _ in range(rng.randint(9, 15))]
        for _ in range(max(1, rounds // 12))
    ]
    eager = math.exp(rng.uniform(1.5, 7.0))
    return speed_of(ratio, math.expm1(width), verdict, eager_us=eager, other_us=eager / ratio, pairs=pairs)


def right(rng: random.Random, task: str, number: int, operators: list[str], candidate: str = "made-up") -> Record:
    """Return the record of a correct subgraph."""
    dtype = DTYPES[number % len(DTYPES)]
    error, rows = math.exp(rng.uniform(-16, -4)), 64 * rng.randint(1, 64)
    ratio, rounds = math.exp(rng.gauss(0.35, 0.25)), int(rng.expovariate(1 / MEAN_ROUNDS)) + 24
    arm = ArmResult(correct_from=[rng.choice((-11, -6, -5))], error64=[error * rng.uniform(0.3, 1.2)],
                    greatest_ratio64=[rng.uniform(0.3, 1.9)], mean_ratio64=[rng.uniform(0.5, 1.2)],
                    speed=random_speed(rng, ratio, rounds=rounds))  # fmt: skip
    plan = [
        f"allocate b0: {dtype} [{number % 8 + 1}, {rows}, 768]",
        f"launch fused_{operators[0]}(a0, a1, b0, {rows * 768})",
    ]
    matched = PassReport("_".join(operators[:3]), 1, operators[:4], plan=plan)
    missed = [PassReport(f"pass_{i}", miss="the graph has no tanh; it has add, mul", nearness=0.2) for i in range(32)]
    source = f"{rng.choice(MODELS)}, batch {number % 8 + 1}, size {rows})"
    return Record(task, f"model{number % 17}-{dtype}-b{number % 8 + 1}n{rows}", candidate, source=source, dtype=dtype,
                  dtypes=[dtype], eager_error64=[error], arm=arm, passes=[matched, *missed], operators=operators,
                  durations={"build": rng.uniform(0.3, 2), "blocks": rng.uniform(0.1, 1)})  # fmt: skip


def full_run(tasks: int = TASKS, subgraphs: int = SUBGRAPHS) -> Run:
    """Return a run as large as that of the full suite."""
    rng = random.Random(1)
    counts = [1 + (subgraphs - tasks) // tasks] * tasks
    counts[0] += subgraphs - sum(counts)
    records, names = [], []
    for index, count in enumerate(counts):
        operators = rng.choices(OPERATORS, k=rng.randint(2, 9))
        names.append(f"{'-'.join(operators[:4])}-{index:04x}")
        records += [right(rng, names[-1], 1000 * index + at, operators) for at in range(count)]
    for number, record in enumerate(records):
        record.subgraph = f"{record.subgraph}-{number}"  # unique, as in a task
    return finished_run(records, names)


def finished_run(records: list[Record], tasks: list[str], **values: object) -> Run:
    """Return a finished run of these records, with its machine."""
    facts = {
        "settings": {"tolerance": -5, "criterion": "ladder", "pipeline": "direct", "baselines": [],
                     "audit": "standard"},
        "environment": {"cpu": "made up", "cores": 2, "torch": "2.13.0+cpu", "python": "3.11.7", "load": 0.52},
        "noise": {"width": 0.021, "offset": 0.006, "sessions": 10},
        "seed": {"commitment": "cd" * 32, "revealed": "ef" * 32},
        "started": "2026-11-01T10:00:00+00:00",
        "finished": "2026-11-01T11:30:00+00:00",
    }  # fmt: skip
    return run_of(*records, tasks=tasks, **{**facts, **values})


def troubled_run(candidate: str = "troubled") -> Run:
    """Return a run with every way in which a subgraph can end: fast, slow, wrong, cheating, crashed, not judged."""
    rng = random.Random(2)
    operators = {"gelu-add-1111": ["gelu", "add"], "mean-pow-2222": ["mean", "pow"], "silu-mul-3333": ["silu", "mul"],
                 "softmax-to-4444": ["softmax", "to"],
                 "a-task-with-a-very-long-name-of-many-operators-5555": ["add"] * 9}  # fmt: skip
    good, poor, cheat, broken, long = operators

    def one(task: str, number: int, **values: object) -> Record:
        record = right(rng, task, number, operators[task], candidate)
        record.subgraph, record.arm.correct_from = f"model-{number}", [-6]
        for name, value in values.items():
            setattr(record, name, value)
        return record

    def failed(status: str, message: str = "", **values: object) -> ArmResult:
        return ArmResult(status, message=message, **values)  # type: ignore[arg-type]

    finding = Finding(
        "source", "torch-op", "violation", "the kernel wrapper computes with torch (aten.mul)", "fuse.py", 12
    )
    hint = Finding("plan", "table", "warning", "pass fuse brings 4096 bytes of constant tables")
    miss = [
        PassReport("fuse_softmax", miss="nearest: tmp_2 = mul: expected silu, found chunk; it has to", nearness=0.6)
    ]
    records = [
        one(good, 1), one(good, 2, findings=[hint]),
        one(poor, 1), one(poor, 2), one(poor, 3),
        one(cheat, 1, arm=failed("integrity", "torch.mul in a replacement"), findings=[finding]),
        one(cheat, 2, arm=failed("integrity", "torch.mul in a replacement"), findings=[finding]),
        one(broken, 1, arm=failed("pass_miss", "no pass matched"), passes=miss),
        one(broken, 2, arm=failed("crash", "the process was killed by signal 11", phase="measure",
                                    output="segmentation\nfault")),
        one(broken, 3, arm=failed("compile_fail", "fuse.cpp:3: error: 'totl' was not declared in this scope",
                                    phase="compile")),
        one(broken, 4, arm=failed("harness_fail", "no memory left")),
        one(long, 1), one(long, 2),
    ]  # fmt: skip
    for record, (ratio, verdict, width) in zip(
        [records[2], records[3], records[4]],
        [(0.6, "SLOWER", WIDTH), (1.0, "SAME", 0.01), (1.04, "UNRESOLVED", 0.2)], strict=True
    ):  # fmt: skip
        record.arm.speed = random_speed(rng, ratio, verdict, width=width)
    records[-1].arm.correct_from, records[-1].arm.worst = (
        [-2],
        "output 0 [3, 4]: 1.013 for 1.0 (greatest error 0.013)",
    )
    records[-1].arm.greatest_ratio64 = [812.0]
    records[-2].arm.speed, records[-2].arm.speed_note = None, "Triton's interpreter ran it"
    for record in records:
        record.baselines["inductor"] = ArmResult(correct_from=[-6], greatest_ratio64=[1.0], mean_ratio64=[1.0],
                                                 speed=random_speed(rng, 0.9, rounds=60))  # fmt: skip
    run = finished_run(records, [*operators, "never-judged-6666"])
    run.selected[candidate]["never-judged-6666"] = 3
    run.settings["baselines"] = ["inductor"]
    return run
