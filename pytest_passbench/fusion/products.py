"""Products of matrices and convolutions in half precision, for machines on which eager's take far longer than in float32.

Eager's kernels for halves need instructions that many CPUs lack. Without them it multiplies element by element: 15 to
40 times as long as for float32 (figures: benchmarks/LOG.md). Here halves become floats as they are laid out for a tile
of registers. Sums are in float and rounded once, as eager's are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pytest_passbench.fusion.ir import HALVES, Buffer, Call, Unsupported, Value, size_text
from pytest_passbench.fusion.lower import rule
from pytest_passbench.fusion.pieces import to_be_stored

FEWEST_COLUMNS = 4
"""With fewer columns, most lanes of a register would be empty."""
FEWEST_TERMS = 400
"""Eager adds the terms of fewer in a batch one by one."""
ALONG_DEPTH = 4
"""Eager adds four elements at a time if both operands lie along the depth, and then is as fast as a kernel that lays
out m + n lines for m n sums, unless m n / (m + n) is greater than this."""


@functools.cache
def eager_is_slow(dtype: torch.dtype) -> bool:
    """Return True if eager's products of this dtype use no instructions for half precision on this machine."""
    mkldnn = torch.ops.mkldnn
    has_kernels = {torch.bfloat16: mkldnn._is_mkldnn_bf16_supported, torch.float16: mkldnn._is_mkldnn_fp16_supported}
    return dtype in has_kernels and not has_kernels[dtype]()


@dataclass(frozen=True)
class Product:
    """A call of a C++ function of :data:`PRODUCT_TEXTS`, which stores a buffer.

    ``name`` is the operator's. ``text`` has ``{0}`` for the pointer to the result, and ``{1}``, ``{2}`` and so on for
    those to ``operands``.
    """

    name: str
    text: str
    result: Buffer
    operands: tuple[Value, ...]

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that it reads."""
        return [value.buffer for value in self.operands]

    def line(self, names: Mapping[Buffer, str]) -> str:
        """Return the call, with these names for the pointers to buffers."""
        places = [f"{names[v.buffer]} + {size_text(v.offset)}" if v.offset else names[v.buffer] for v in self.operands]
        text = self.text
        for number, place in enumerate([names[self.result], *places]):
            text = text.replace(f"{{{number}}}", place)
        return text


Maker: TypeAlias = Callable[[Call], Product]


def _steps(*numbers: int) -> str:
    return ", ".join(map(size_text, numbers))


def _checked(call: Call, columns: int) -> None:
    """Raise Unsupported for a product that is not in half precision throughout, or that has few columns."""
    dtype = call.results[0].dtype
    if dtype not in HALVES or any(value.dtype != dtype for value in call.values()):
        raise Unsupported(f"{call.name} of {dtype}".replace("torch.", ""))
    if columns < FEWEST_COLUMNS:
        raise Unsupported(f"{call.name} with a result of {columns} columns")


def _matrices(call: Call, left: Value, right: Value, added: Value | None) -> Product:
    """Return the product of two matrices, or of as many pairs of them as ``left`` has in its first dimension."""
    a = call.arguments
    if a.get("alpha", 1) != 1 or a.get("beta", 1) != 1:
        raise Unsupported(f"{call.name} with factors")
    result = call.results[0]
    _checked(call, result.sizes[-1])
    if result.strides[-1] != 1:
        raise Unsupported(f"{call.name} into columns")
    rows, columns, depth = result.sizes[-2], result.sizes[-1], left.sizes[-1]
    function = _function(left, right, rows, columns, depth)
    if function == "dots" and rows * columns <= ALONG_DEPTH * (rows + columns):
        raise Unsupported(f"{call.name} of {rows} rows and {columns} columns is fast in eager")
    batched = len(result.sizes) == 3

    def strides(value: Value | Buffer) -> list[int]:
        sizes = (1,) * (len(result.sizes) - len(value.sizes)) + value.sizes
        steps = (0,) * (len(result.sizes) - len(value.sizes)) + value.strides
        spread = [0 if size == 1 else step for size, step in zip(sizes, steps, strict=True)]
        return spread if batched else [0, *spread]

    count = result.sizes[0] if batched else 1
    operands = (left, right) if added is None else (left, right, added)
    places = "{1}, {2}, " + ("nullptr" if added is None else "{3}")
    layouts = [f"{{{_steps(*strides(item))}}}" for item in (result, left, right, added or right)]
    text = f"{function}({{0}}, {places}, {_steps(count, rows, columns, depth)}, {', '.join(layouts)});"
    return Product(call.name, text, result, operands)


def _function(left: Value, right: Value, rows: int, columns: int, depth: int) -> str:
    """Return the C++ function for a product, which adds terms in the order that follows from how eager reads matrices.

    Source: ``gemm_core_`` in aten/src/ATen/native/cpu/BlasKernel.cpp of PyTorch, ReducedPrecisionFloatGemvFastPathKernel
    there, and comparisons with eager's bits.
    """
    if len(left.sizes) == 3 and rows * columns * depth < FEWEST_TERMS:
        return "products<false>"
    across = left.strides[-2] == 1 and left.strides[-1] >= rows and not _in_rows(left)
    down = right.strides[-2] == 1 and right.strides[-1] >= depth and not _in_rows(right)
    if down and not across:
        return "dots"
    return f"products<{'false' if across and not down else 'true'}>"


def _in_rows(value: Value) -> bool:
    return value.strides[-1] == 1 and value.strides[-2] >= value.sizes[-1]


def _mm(call: Call) -> Product:
    return _matrices(call, call.arguments["self"], call.arguments["mat2"], None)


def _addmm(call: Call) -> Product:
    return _matrices(call, call.arguments["mat1"], call.arguments["mat2"], call.arguments["self"])


def _baddbmm(call: Call) -> Product:
    return _matrices(call, call.arguments["batch1"], call.arguments["batch2"], call.arguments["self"])


def _convolution(call: Call) -> Product:
    a, result = call.arguments, call.results[0]
    image, weight, bias, groups = a["input"], a["weight"], a["bias"], a["groups"]
    rank = len(weight.sizes) - 2
    if a["transposed"] or not 1 <= rank <= 3 or len(image.sizes) != rank + 2:
        raise Unsupported("a transposed convolution" if a["transposed"] else f"a convolution of {rank} dimensions")
    if not (_dense(image) and _dense(weight) and _dense(result)):
        raise Unsupported("a convolution of tensors that are not contiguous")
    _checked(call, math.prod(result.sizes[2:]))
    values = (a[name] for name in ("stride", "padding", "dilation"))
    stride, padding, dilation = ([1] * (3 - rank) + _for_each(item, rank) for item in values)
    padding[: 3 - rank] = [0] * (3 - rank)
    triples = [[*[1] * (3 - rank), *sizes[2:]] for sizes in (image.sizes, weight.sizes, result.sizes)]
    shape = ", ".join(f"{{{_steps(*triple)}}}" for triple in (*triples, stride, padding, dilation))
    counts = _steps(image.sizes[0], groups, weight.sizes[1], weight.sizes[0] // groups)
    text = f"convolution({{0}}, {{1}}, {{2}}, {'nullptr' if bias is None else '{3}'}, {counts}, {{{shape}}});"
    return Product(call.name, text, result, (image, weight) if bias is None else (image, weight, bias))


def _dense(value: Value | Buffer) -> bool:
    expected = 1
    for size, stride in zip(reversed(value.sizes), reversed(value.strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _for_each(item: Any, rank: int) -> list[int]:
    items: Sequence[int] = item if isinstance(item, (list, tuple)) else [item]
    return [*items] * rank if len(items) == 1 else [*items]


PRODUCTS: dict[str, Maker] = {
    "mm": _mm, "bmm": _mm, "addmm": _addmm, "baddbmm": _baddbmm, "convolution": _convolution,
}  # fmt: skip
"""The functions that return an operator's product, by the operator's name. They raise Unsupported."""
rule(*PRODUCTS)(to_be_stored)

PRODUCT_TEXTS = {
    "Steps Added": """\
struct Steps { int64_t matrix, row, column; };
template <class T> struct Added {  // what is added to a product: the bias, if any
  const T* p;
  Steps steps;
  vec operator()(int64_t matrix, int64_t m, int64_t n, int64_t lanes) const {
    if (!p) return vec{};
    const T* from = p + matrix * steps.matrix + m * steps.row + n * steps.column;
    return steps.column == 1 ? pb::load(from, lanes) : gather(from, steps.column, lanes);
  }
};
""",
    "TALL BROAD laid_out Sums chain tile tiles": """\
// A product in tiles of TALL rows and BROAD columns. Both operands are laid out as floats before: for each place along
// the depth, the elements of TALL rows (a register's room) and of BROAD columns.
constexpr int TALL = 6, BROAD = 2 * pb::L;
// Where term k of a sum lies. With FOUR, eager adds each fourth term, and then the four sums. Else it adds in turn.
template <bool FOUR> int64_t place(int64_t k, int64_t depth) {
  int64_t each = depth / 4, rest = depth % 4;
  return !FOUR ? k : k >= 4 * each ? k - 3 * each : k % 4 * each + (k % 4 ? rest : 0) + k / 4;
}
// Lays out `count` lines of `depth` elements that lie `step` apart: SIZE floats for each place along the depth.
template <bool FOUR, int SIZE, class T>
void laid_out(float* to, const T* p, int64_t count, int64_t depth, int64_t line, int64_t step) {
  for (int64_t k = 0; k < depth; k += pb::L)
    for (int64_t j = 0; j < SIZE; j += pb::L) {
      int64_t lanes = count - j < 0 ? 0 : count - j < pb::L ? count - j : pb::L;
      int64_t height = depth - k < pb::L ? depth - k : pb::L;
      const T* from = p + j * line + k * step;
      vec rows[pb::L]{};
      if (step == 1) get_transposed(rows, from, line, lanes, height);
      else if (line == 1) for (int64_t i = 0; i < height; i++) rows[i] = pb::load(from + i * step, lanes);
      else for (int64_t i = 0; i < height; i++) rows[i] = gather(from + i * step, line, lanes);
      for (int64_t i = 0; i < height; i++) pb::store(to + place<FOUR>(k + i, depth) * SIZE + j, rows[i]);
    }
}
template <int ROWS> struct Sums {
  vec at[ROWS][2] = {};
};
template <int ROWS> Sums<ROWS> chain(const float*& left, const float*& right, int64_t count) {
  Sums<ROWS> sums;
  for (int64_t k = 0; k < count; k++, left += pb::L, right += BROAD) {
    vec first = pb::load(right), second = pb::load(right + pb::L);
#pragma GCC unroll 6
    for (int i = 0; i < ROWS; i++) {
      vec x = pb::all(left[i]);
      sums.at[i][0] = pb::fma(x, first, sums.at[i][0]);
      sums.at[i][1] = pb::fma(x, second, sums.at[i][1]);
    }
  }
  return sums;
}
template <bool FOUR, int ROWS, class T, class F>
int64_t tile(T* out, const float* left, const float* right, int64_t m, int64_t columns, int64_t depth, int64_t row,
             F added) {
  Sums<ROWS> sums = chain<ROWS>(left, right, FOUR ? depth / 4 + depth % 4 : depth);
  for (int turn = 1; FOUR && turn < 4; turn++) {
    Sums<ROWS> more = chain<ROWS>(left, right, depth / 4);
    for (int i = 0; i < ROWS; i++) sums.at[i][0] += more.at[i][0], sums.at[i][1] += more.at[i][1];
  }
  for (int64_t i = 0; i < ROWS; i++)
    for (int64_t j = 0; j < columns; j += pb::L) {
      int64_t lanes = columns - j < pb::L ? columns - j : pb::L;
      pb::store(out + (m + i) * row + j, sums.at[i][j / pb::L] + added(m + i, j, lanes), lanes);
    }
  return ROWS;
}
// Stores up to BROAD columns of a product, plus what `added(row, column, lanes)` returns.
template <bool FOUR, class T, class F>
void tiles(T* out, const float* left, const float* right, int64_t rows, int64_t columns, int64_t depth, int64_t row,
           F added) {
  for (int64_t m = 0; m < rows;) {
    const float* block = left + m / TALL * pb::L * depth + m % TALL;
    if (rows - m >= TALL) m += tile<FOUR, TALL>(out, block, right, m, columns, depth, row, added);
    else if (rows - m >= 2) m += tile<FOUR, 2>(out, block, right, m, columns, depth, row, added);
    else m += tile<FOUR, 1>(out, block, right, m, columns, depth, row, added);
  }
}
template <bool FOUR, class T>
void blocks(float* to, const T* p, int64_t rows, int64_t depth, int64_t line, int64_t step) {
  for (int64_t m = 0; m < rows; m += TALL, to += pb::L * depth)
    laid_out<FOUR, pb::L>(to, p + m * line, rows - m < TALL ? rows - m : TALL, depth, line, step);
}
""",
    "products": """\
template <bool FOUR, class T>
void products(T* out, const T* left, const T* right, const std::common_type_t<T>* added, int64_t count, int64_t rows,
              int64_t columns, int64_t depth, Steps o, Steps l, Steps r, Steps a) {
  pb::buffer block((rows + TALL - 1) / TALL * pb::L * depth), panel(BROAD * depth);
  for (int64_t matrix = 0; matrix < count; matrix++) {
    blocks<FOUR>(block.data, left + matrix * l.matrix, rows, depth, l.row, l.column);
    for (int64_t n = 0; n < columns; n += BROAD) {
      int64_t broad = columns - n < BROAD ? columns - n : BROAD;
      laid_out<FOUR, BROAD>(panel.data, right + matrix * r.matrix + n * r.column, broad, depth, r.column, r.row);
      tiles<FOUR>(out + matrix * o.matrix + n, block.data, panel.data, rows, broad, depth, o.row,
                  [&](int64_t m, int64_t j, int64_t lanes) { return Added<T>{added, a}(matrix, m, n + j, lanes); });
    }
  }
}
""",
    "dots": """\
// A product of operands that both lie along the depth. Eager adds the terms to eight registers in turn, those that are
// left at the end to another, and then joins each register with the one half as far from the first, and so its lanes.
constexpr int DOTS_ROWS = pb::L / 4, DOTS_COLUMNS = 4, DOTS = pb::L, PANEL = 32;
template <class T>
void floats(float* to, const T* p, int64_t count, int64_t room, int64_t depth, int64_t line, int64_t step) {
  for (int64_t i = 0; i < count; i++, p += line) {
    int64_t k = 0;
    for (; step == 1 && k + pb::L <= depth; k += pb::L, to += pb::L) pb::store(to, pb::load(p + k));
    for (; k < depth; k++) *to++ = pb::get(p + k * step);
  }
  std::memset(to, 0, (room - count) * depth * sizeof(float));
}
struct Dots { vec at[DOTS] = {}; };
inline void add_products(Dots& sums, const float* left, const float* right, int64_t first, int64_t end, int64_t step,
                         int64_t depth) {
  Dots s = sums;
  for (int64_t k = first; k < end; k += step) {
    vec y[DOTS_COLUMNS];
#pragma GCC unroll 4
    for (int j = 0; j < DOTS_COLUMNS; j++) y[j] = pb::load(right + j * depth + k);
#pragma GCC unroll 4
    for (int i = 0; i < DOTS_ROWS; i++) {
      vec x = pb::load(left + i * depth + k);
#pragma GCC unroll 4
      for (int j = 0; j < DOTS_COLUMNS; j++) s.at[4 * i + j] = pb::fma(x, y[j], s.at[4 * i + j]);
    }
  }
  sums = s;
}
inline vec joined(Dots& sums) {
  transpose(sums.at);
  for (int half = pb::L / 2; half; half /= 2)
    for (int i = 0; i < half; i++) sums.at[i] += sums.at[i + half];
  return sums.at[0];
}
inline vec dot_products(const float* left, const float* right, int64_t depth) {
  int64_t whole = depth - depth % (8 * pb::L), even = depth - depth % (2 * pb::L);
  vec total{};
  if (whole) {
    Dots waiting[4];
    int height = 0;
    for (int number = 0; number < 8; number++) {
      int place = (number & 1) * 4 + (number & 2) + number / 4;
      Dots sums;
      add_products(sums, left, right, place * pb::L, whole, 8 * pb::L, depth);
      for (int bits = number; bits & 1; bits >>= 1) {
        height--;
        for (int i = 0; i < DOTS; i++) sums.at[i] += waiting[height].at[i];
      }
      waiting[height++] = sums;
    }
    total = joined(waiting[0]);
  }
  if (even > whole) {
    Dots rest;
    add_products(rest, left, right, whole, even, pb::L, depth);
    total += joined(rest);
  }
  for (int64_t k = even; k < depth; k++) {
    vec x{}, y{};
    for (int i = 0; i < DOTS; i++) x[i] = left[i / 4 * depth + k], y[i] = right[i % 4 * depth + k];
    total = pb::fma(x, y, total);
  }
  return total;
}
template <class T>
void dots(T* out, const T* left, const T* right, const std::common_type_t<T>* added, int64_t count, int64_t rows,
          int64_t columns, int64_t depth, Steps o, Steps l, Steps r, Steps a) {
  int64_t room = (rows + DOTS_ROWS - 1) / DOTS_ROWS * DOTS_ROWS;
  pb::buffer block(room * depth), panel(PANEL * depth);
  for (int64_t matrix = 0; matrix < count; matrix++) {
    floats(block.data, left + matrix * l.matrix, rows, room, depth, l.row, l.column);
    for (int64_t n = 0; n < columns; n += PANEL) {
      int64_t broad = columns - n < PANEL ? columns - n : PANEL;
      floats(panel.data, right + matrix * r.matrix + n * r.column, broad, (broad + 3) / 4 * 4, depth, r.column, 1);
      for (int64_t m = 0; m < rows; m += DOTS_ROWS)
        for (int64_t j = 0; j < broad; j += DOTS_COLUMNS) {
          float sums[DOTS];
          pb::store(sums, dot_products(block.data + m * depth, panel.data + j * depth, depth));
          int64_t lanes = broad - j < DOTS_COLUMNS ? broad - j : DOTS_COLUMNS;
          for (int64_t i = 0; i < DOTS_ROWS && m + i < rows; i++)
            pb::store(out + matrix * o.matrix + (m + i) * o.row + n + j,
                      pb::load(sums + 4 * i, lanes) + Added<T>{added, a}(matrix, m + i, n + j, lanes), lanes);
        }
    }
  }
}
""",
    "Window convolution": """\
struct Window { int64_t size[3], kernel[3], result[3], stride[3], padding[3], dilation[3]; };
// A convolution is a product: of the weight, whose rows are the channels of the result, and of the image under the
// kernel, with a column for each place of the result. The image is copied with its margin, so that no place is outside.
template <class T>
void convolution(T* out, const T* image, const T* weight, const std::common_type_t<T>* bias, int64_t count,
                 int64_t groups, int64_t channels, int64_t rows, const Window& w) {
  int64_t margin[3], depth = channels, places = w.result[0] * w.result[1] * w.result[2];
  for (int d = 0; d < 3; d++) margin[d] = w.size[d] + 2 * w.padding[d], depth *= w.kernel[d];
  int64_t plane = margin[0] * margin[1] * margin[2];
  bool close = w.stride[0] == 1 && w.stride[1] == 1 && w.stride[2] == 1;
  bool whole = close && margin[2] == w.result[2] && (margin[1] == w.result[1] || w.result[0] == 1);
  // Panels end with a line of the result if the image lies in a row then, and few of their columns are lost.
  int64_t line = w.result[2], filled = (line + BROAD - 1) / BROAD * BROAD;
  bool by_line = !whole && close && (4 * line >= 3 * filled || rows < 2 * TALL);
  int64_t run = by_line ? line : places;
  pb::buffer padded(channels * plane + BROAD), block((rows + TALL - 1) / TALL * pb::L * depth), panel(BROAD * depth);
  std::memset(padded.data, 0, (channels * plane + BROAD) * sizeof(float));
  for (int64_t g = 0; g < groups; g++) {
    blocks<true>(block.data, weight + g * rows * depth, rows, depth, depth, 1);
    for (int64_t example = 0; example < count; example++) {
      const T* from = image + (example * groups + g) * channels * w.size[0] * w.size[1] * w.size[2];
      for (int64_t c = 0; c < channels; c++)
        for (int64_t z = 0; z < w.size[0]; z++)
          for (int64_t y = 0; y < w.size[1]; y++, from += w.size[2]) {
            float* to = padded.data + c * plane + w.padding[2]
                      + ((z + w.padding[0]) * margin[1] + y + w.padding[1]) * margin[2];
            int64_t x = 0;
            for (; x + pb::L <= w.size[2]; x += pb::L) pb::store(to + x, pb::load(from + x));
            if (x < w.size[2]) pb::store(to + x, pb::load(from + x, w.size[2] - x), w.size[2] - x);
          }
      T* result = out + (example * groups + g) * rows * places;
      for (int64_t n = 0; n < places;) {
        int64_t rest = run - n % run, broad = rest < BROAD ? rest : BROAD, at[BROAD], k = 0;
        for (int64_t j = 0; j < BROAD; j++) {
          int64_t spot = n + (j < broad ? j : broad - 1), x = spot % line, lines = spot / line;
          int64_t y = lines % w.result[1] * w.stride[1], z = lines / w.result[1] * w.stride[0];
          at[j] = (z * margin[1] + y) * margin[2] + x * w.stride[2];
        }
        for (int64_t c = 0; c < channels; c++)
          for (int64_t z = 0; z < w.kernel[0]; z++)
            for (int64_t y = 0; y < w.kernel[1]; y++)
              for (int64_t x = 0; x < w.kernel[2]; x++, k++) {
                float* to = panel.data + place<true>(k, depth) * BROAD;
                const float* p = padded.data + c * plane + x * w.dilation[2]
                               + (z * w.dilation[0] * margin[1] + y * w.dilation[1]) * margin[2];
                if (whole || by_line) std::memcpy(to, p + at[0], BROAD * sizeof(float));
                else for (int64_t j = 0; j < BROAD; j++) to[j] = p[at[j]];
              }
        tiles<true>(result + n, block.data, panel.data, rows, broad, depth, places,
                    [&](int64_t m, int64_t, int64_t) { return bias ? pb::all(pb::get(bias + g * rows + m)) : vec{}; });
        n += broad;
      }
    }
  }
}
""",
}
"""The C++ functions of products, by the names that each text defines."""
