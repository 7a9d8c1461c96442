"""Inputs: their distributions, that they can be made again, and that their streams are independent."""

from __future__ import annotations

import ctypes
import math
import struct
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch

from pytest_passbench.core.seed import Secret
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs import Batch, Inputs
from pytest_passbench.judge.inputs.distribution import Draw, Integers
from pytest_passbench.judge.inputs.generator import (
    AES_NI,
    CHACHA8,
    NAMES,
    VAES,
    Generator,
    Native,
    Portable,
    default,
    load,
)
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.kernels.toolchain import CompileError

KEY = bytes(range(32))
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")
GREAT = [
    *(("int64", -(2**62), 2**62), ("int64", 0, 3 * 2**31), ("uint64", 0, 2**64 - 1), ("uint32", 0, 2**32 - 1)),
    *(("int32", -(2**31), 2**20), ("int16", -(2**15), 2**15 - 1)),
]
OTHERS = ("bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")


def generators() -> list[Generator]:
    """Return every generator that this machine has."""
    found: list[Generator] = [Portable("tests")]
    try:
        return found + [Native(cipher) for cipher in range(Native().cipher + 1)]
    except CompileError:
        return found


GENERATORS = generators()
NATIVE = [one for one in GENERATORS if isinstance(one, Native)]
needs_compiler = pytest.mark.skipif(not NATIVE, reason="no compiler")


def of_cipher(cipher: int, *values: Any) -> Any:
    """Return test parameters for a compiled generator's cipher. They are skipped if this machine lacks the cipher."""
    lacking = cipher not in [native.cipher for native in NATIVE]
    marks = [pytest.mark.skip(reason="no compiler, or a CPU without this cipher")] if lacking else []
    return pytest.param(*values, id=NAMES[cipher].partition(",")[0], marks=marks)


every_generator = pytest.mark.parametrize(
    "generator",
    [
        pytest.param(GENERATORS[0], id=GENERATORS[0].name.partition(",")[0]),
        *(of_cipher(cipher, dict(enumerate(NATIVE)).get(cipher)) for cipher in (CHACHA8, AES_NI, VAES)),
    ],
)


def spec(dtype: str, shape: tuple[int, ...], **told: float) -> TensorSpec:
    return TensorSpec(f"in_{dtype}", shape, dtype, **told)


def drawn(one: TensorSpec, generator: Generator, key: bytes = KEY) -> torch.Tensor:
    """Return an input of one call, flat, in float64 or int64."""
    inputs = Inputs([one], key, generator)
    (value,) = inputs.call(inputs.draw(1), 0)
    assert (value.shape, str(value.dtype)) == (one.shape, f"torch.{one.dtype}")
    return value.flatten()


# Published vectors


def aes(cipher: int, key: str, blocks: list[str]) -> list[str]:
    """Return up to eight encrypted blocks, in hex."""
    data = ctypes.create_string_buffer(bytes.fromhex("".join(blocks)).ljust(128, b"\0"), 128)
    Native().library.passbench_aes(cipher, bytes.fromhex(key), data)
    return [data.raw[16 * i : 16 * i + 16].hex() for i in range(len(blocks))]


@pytest.mark.parametrize("cipher", [of_cipher(cipher, cipher) for cipher in (AES_NI, VAES)])
def test_aes_is_that_of_the_standards(cipher):
    fips197 = aes(cipher, "000102030405060708090a0b0c0d0e0f", ["00112233445566778899aabbccddeeff"])
    assert fips197 == ["69c4e0d86a7b0430d8cdb78070b4c55a"]
    counter = 0xF0F1F2F3F4F5F6F7F8F9FAFBFCFDFEFF  # NIST SP 800-38A, F.5.1
    key, counters = "2b7e151628aed2a6abf7158809cf4f3c", [f"{counter + i:032x}" for i in range(4)]
    plain = (
        *("6bc1bee22e409f96e93d7e117393172a", "ae2d8a571e03ac9c9eb76fac45af8e51"),
        *("30c81c46a35ce411e5fbc1191a0a52ef", "f69f2445df4f9b17ad2b417be66c3710"),
    )
    found = [f"{int(a, 16) ^ int(b, 16):032x}" for a, b in zip(aes(cipher, key, counters), plain, strict=True)]
    assert found == [
        *("874d6191b620e3261bef6864990db6ce", "9806f66b7970fdff8617187bb9fffdff"),
        *("5ae4df3edbd5d35e5b4f09020db03eab", "1e031dda2fbe03d1792170a0f3009cee"),
    ]


def chacha(rounds: int, key: bytes, last: tuple[int, int, int, int]) -> list[bytes]:
    """Return sixteen blocks, from the given number on."""
    out = ctypes.create_string_buffer(1024)
    Native().library.passbench_chacha(rounds, key, struct.pack("<4I", *last), out)
    words = np.frombuffer(out.raw, "<u4").reshape(16, 16)
    return [words[:, block].tobytes() for block in range(16)]


@needs_compiler
def test_chacha_is_that_of_the_rfc():
    nonce = struct.unpack("<3I", bytes.fromhex("000000090000004a00000000"))
    assert chacha(20, bytes(range(32)), (1, *nonce))[0].hex() == (  # RFC 8439, 2.3.2
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert [block.hex()[:64] for block in chacha(20, bytes(32), (0, 0, 0, 0))[:2]] == [  # A.1, 1 and 2
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7",
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed",
    ]
    assert chacha(8, KEY, (0, 0, 0, 0))[0] != chacha(20, KEY, (0, 0, 0, 0))[0]


@needs_compiler
def test_a_stream_is_the_cipher_of_counter_and_nonce():
    nonce, (block, call, index) = 0x0102030405060708, (0x01020304, 0x0506, 0x0708)
    draws = [*[None] * index, Draw("x", (256,), "uint64", Integers(0, 1 << 64))]  # the stream's own words
    for one in NATIVE:
        out = ctypes.create_string_buffer(2048)
        one.writer(KEY, draws).single(block, call, index, ctypes.addressof(out))
        if one.cipher == CHACHA8:
            blocks = [
                np.frombuffer(b"".join(chacha(8, KEY, (first, 0, nonce & 0xFFFFFFFF, nonce >> 32))), "<u4")
                for first in (0, 16)
            ]
            wanted = b"".join(block.reshape(16, 16).T.tobytes() for block in blocks)
        else:
            counters = [struct.pack("<QQ", number, nonce).hex() for number in range(128)]
            parts = [aes(AES_NI, KEY[:16].hex(), counters[i : i + 8]) for i in range(0, 128, 8)]
            wanted = bytes.fromhex("".join(block for part in parts for block in part))
        assert out.raw == wanted, one.name


# Distributions


@every_generator
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_normal_with_a_scale_and_a_shift_of_their_own(generator, dtype):
    count, mean, deviation = 400_000, 3.0, 2.0
    told = spec(dtype, (count,), mean=mean, std=deviation)
    scales, shifts = [], []
    for number in range(3):
        x = drawn(told, generator, bytes([number]) * 32).double()
        scale, shift = float(x.std()) / deviation, (float(x.mean()) - mean) / deviation
        scales.append(scale)
        shifts.append(shift)
        assert 0.74 < scale < 1.01
        assert abs(shift) < 0.21
        z = (x - x.mean()) / x.std()
        wanted = [torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(q)).item() for q in (0.01, 0.05, 0.5, 0.9)]
        found = [float(z.kthvalue(int(q * count)).values) for q in (0.01, 0.05, 0.5, 0.9)]
        coarse = 0.02 if dtype == "bfloat16" else 0.0
        assert found == pytest.approx(wanted, abs=0.025 + coarse)
        assert float((z**3).mean()) == pytest.approx(0, abs=0.03)
        assert float((z**4).mean()) == pytest.approx(3, abs=0.08)
    assert len({round(scale, 4) for scale in scales}) == 3
    assert len({round(shift, 3) for shift in shifts}) == 3


@every_generator
@pytest.mark.parametrize("dtype", FLOATS)
def test_recorded_bounds_hold_constants_are_widened_and_masks_have_two_values(generator, dtype):
    within = drawn(spec(dtype, (5000,), mean=0.5, std=2.0, min=0.0, max=1.0), generator).double()
    assert (float(within.min()), float(within.max())) == (0.0, 1.0)
    constant = drawn(spec(dtype, (5000,), mean=2.0, std=0.0, min=2.0, max=2.0), generator).double()
    assert 0.1 < float(constant.std()) < 0.25
    unknown = drawn(spec(dtype, (5000,)), generator).double()
    assert 0.7 < float(unknown.std()) < 1.05
    above = drawn(spec(dtype, (5000,), mean=1.0, std=1.0, min=0.5), generator).double()
    assert float(above.min()) == 0.5
    assert float(above.max()) > 2
    below = drawn(spec(dtype, (5000,), mean=1.0, std=1.0, max=0.5), generator).double()
    assert float(below.max()) == 0.5
    assert float(below.min()) < 0
    mask = drawn(spec(dtype, (40_000,), min=-math.inf, max=0.0), generator).double()
    assert set(mask.unique().tolist()) == {-math.inf, 0.0}
    assert float(mask.isinf().double().mean()) == pytest.approx(0.25, abs=0.01)
    finite = drawn(spec("float32", (100,), min=-3.4e38, max=1.5, mean=-1e38), generator)
    assert finite.unique().tolist() == pytest.approx([-3.4e38, 1.5])


@every_generator
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_as_likely_each_between_their_bounds(generator, dtype):
    x = drawn(spec(dtype, (200_000,), min=3.0, max=22.0), generator).long()
    counts = torch.bincount(x, minlength=23)
    assert counts[:3].tolist() == [0, 0, 0]
    assert len(counts) == 23
    assert float(((counts[3:] - 10_000).double() ** 2 / 10_000).sum()) < 55  # chi-square, 19 degrees: p = 2e-5
    if not dtype.startswith("u"):
        assert set(drawn(spec(dtype, (1000,), min=-2.0, max=1.0), generator).tolist()) == {-2, -1, 0, 1}


@every_generator
@pytest.mark.parametrize(("dtype", "low", "high"), GREAT)
def test_great_ranges_are_filled_evenly(generator, dtype, low, high):
    x = drawn(spec(dtype, (50_000,), min=low, max=high), generator)
    z = np.array([(int(value) - low) / (high - low + 1) for value in x.tolist()])
    assert 0 <= z.min() < 1e-3
    assert 1 - 1e-3 < z.max() <= 1
    counts, _edges = np.histogram(z, 50, (0, 1))
    assert ((counts - 1000.0) ** 2 / 1000).sum() < 105  # chi-square, 49 degrees: p = 5e-6
    assert np.unique(x.numpy()).size > (20_000 if dtype == "int16" else 49_900)


@every_generator
def test_the_other_dtypes_too(generator):
    flags = drawn(spec("bool", (20_000,)), generator)
    assert float(flags.double().mean()) == pytest.approx(0.5, abs=0.02)
    z = drawn(spec("complex64", (20_000,), mean=5.0, std=1.0), generator)
    assert float(z.real.mean()) == pytest.approx(5, abs=0.25)
    assert float(z.imag.mean()) == pytest.approx(0, abs=0.25)
    assert 0.7 < float(z.imag.std()) < 1.05
    small = drawn(spec("float8_e5m2", (20_000,), mean=0.0, std=1.0), generator).float()
    assert 0.7 < float(small.std()) < 1.05
    literal = TensorSpec("given", (2, 2), "float32", data=(1.0, 2.0, 3.0, 4.0))
    assert drawn(literal, generator).tolist() == [1.0, 2.0, 3.0, 4.0]


# Made again


@every_generator
def test_any_calls_inputs_are_made_again_bit_by_bit(generator):
    told = {"mean": 1.0, "std": 1.0, "min": 0.0, "max": 9.0}
    specs = [spec(dtype, (size,), **told) for dtype in (*FLOATS, *INTEGERS, *OTHERS) for size in (1, 67)]
    specs += [spec("float32", (0, 3)), spec("float32", ()), spec("bfloat16", (5000,))]
    specs.append(TensorSpec("given", (3,), "bfloat16", data=(1.0, 2.0, 3.0)))
    layout = plan_layout(specs)
    pages, inputs = Pages(layout), Inputs(specs, KEY, generator)
    seen = set()
    for calls in (2, 5, 1):
        batch = inputs.draw(calls)
        assert batch.calls == calls
        inputs.write(batch, pages)
        for call in reversed(range(calls)):
            for index, value in enumerate(inputs.call(batch, call)):
                nbytes = value.numel() * value.element_size()
                written = ctypes.string_at(pages.addresses[index][call], nbytes) if nbytes else b""
                assert written == value.contiguous().view(-1).view(torch.uint8).numpy().tobytes(), specs[index]
            seen.add(inputs.values(len(specs) - 2, batch, call).view(torch.int16).numpy().tobytes())
    assert len(seen) == 8
    pages.close()


@needs_compiler
def test_both_forms_of_aes_write_the_same():
    specs = [spec(dtype, (1003,), mean=1.0, std=1.0) for dtype in (*FLOATS, *INTEGERS, "bool")]
    forms = [Inputs(specs, KEY, one).call(Batch(7, 3), 2) for one in NATIVE if one.cipher in (AES_NI, VAES)]
    for other in forms[1:]:  # if the CPU has several forms
        assert all(a.equal(b) for a, b in zip(forms[0], other, strict=True))


def test_without_a_compiler_the_values_come_from_numpy_and_the_record_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(CompileError, match="no C\\+\\+ compiler"):
        load()
    assert "Philox" in default.__wrapped__().name
    assert "no C++ compiler found" in default.__wrapped__().name


# Streams of their own


def test_purposes_have_streams_of_their_own_and_nothing_is_drawn_twice():
    secret = Secret(b"seed", "task", "subgraph")
    purposes = ("order of arms", "stack depths", "verified calls", "audit")
    draws = {purpose: [secret.stream(purpose).getrandbits(64) for _ in range(2000)] for purpose in purposes}
    for one, other in combinations(purposes, 2):
        assert not set(draws[one]) & set(draws[other])
    assert len(set(draws["audit"])) == 2000
    again = Secret(b"seed", "task", "subgraph")
    assert [again.stream("audit").getrandbits(64) for _ in range(2000)] == draws["audit"]
    for names in (("tasks", "ubgraph"), ("task", "subgraph", ""), ("task",)):
        assert Secret(b"seed", *names).key("inputs") != secret.key("inputs")
    assert Secret(b"see", "dtask", "subgraph").key("inputs") != secret.key("inputs")


def test_a_stream_draws_evenly_and_does_not_tell_its_state():
    stream = Secret(b"seed").stream("audit")
    x = np.array([stream.random() for _ in range(20_000)])
    assert (x >= 0).all()
    assert (x < 1).all()
    assert ((np.histogram(x, 20, (0, 1))[0] - 1000.0) ** 2 / 1000).sum() < 55
    assert np.bincount([stream.randrange(7) for _ in range(7000)], minlength=7).min() > 850
    assert sorted(stream.sample(range(9), 9)) == list(range(9))
    assert {stream.getrandbits(3) for _ in range(200)} == set(range(8))
    assert stream.getrandbits(20_000).bit_length() > 19_900
