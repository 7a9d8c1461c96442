"""C++ bodies of kernels that work on rows: reductions, softmax, norms, products of matrices, moves of elements.

Each body is a loop over rows of n elements: ``x`` is read, ``out`` is written. ``pb::sum_as_torch`` adds in the order
of torch.sum, which matters where the sum is rounded to half precision later.
"""

from __future__ import annotations

READ_ROW = """\
  pb::buffer row(n);
  for (int64_t r = 0; r < rows; r++, x += n) {
    for (int64_t j = 0; j < n; j++) row.data[j] = pb::get(x + j);
"""
_SUM = """\
    float sum = 0;
    if (n >= 8) sum = pb::sum_as_torch(n, row.data);
    else for (int64_t j = 0; j < n; j++) sum += row.data[j];
"""
_MOMENTS = """\
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++) sum += row.data[j];
    double mean = sum / n;
    for (int64_t j = 0; j < n; j++) squares += (row.data[j] - mean) * (row.data[j] - mean);
"""

REDUCTIONS = {
    "sum": READ_ROW + _SUM + "    pb::put(out + r, sum);\n  }",
    "mean": READ_ROW + _SUM + "    pb::put(out + r, sum / n);\n  }",
    "var": READ_ROW + _MOMENTS + "    pb::put(out + r, float(squares / (n - correction)));\n  }",
    "std": READ_ROW + _MOMENTS + "    pb::put(out + r, float(std::sqrt(squares / (n - correction))));\n  }",
    "norm": READ_ROW
    + """\
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += double(row.data[j]) * row.data[j];
    pb::put(out + r, float(std::sqrt(squares)));
  }""",
    "amax": READ_ROW
    + """\
    float best = row.data[0];
    for (int64_t j = 1; j < n; j++) if (!(row.data[j] <= best)) best = row.data[j];
    pb::put(out + r, best);
  }""",
    "amin": READ_ROW
    + """\
    float best = row.data[0];
    for (int64_t j = 1; j < n; j++) if (!(row.data[j] >= best)) best = row.data[j];
    pb::put(out + r, best);
  }""",
}
SUM_WHOLE = """\
  for (int64_t r = 0; r < rows; r++, x += n) {
    int64_t sum = 0;
    for (int64_t j = 0; j < n; j++) sum += pb::get(x + j);
    pb::put(out + r, sum);
  }"""
BEST = """\
  for (int64_t r = 0; r < rows; r++, x += n) {{
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) if (pb::get(x + j) {sign} pb::get(x + best)) best = j;
    {keep}pb::put(places + r, best);
  }}"""
SORT = """\
  for (int64_t r = 0; r < rows; r++, x += n, out += n, places += n) {{
    for (int64_t j = 0; j < n; j++) pb::put(places + j, j);
    // Equal elements keep their order, as in eager; NaN counts as the greatest.
    std::stable_sort(places, places + n, [&](int64_t i, int64_t j) {{
      auto a = pb::get(x + {one}), b = pb::get(x + {other});
      return a < b || (a == a && b != b);
    }});
    for (int64_t j = 0; j < n; j++) pb::put(out + j, pb::get(x + places[j]));
  }}"""
CUMSUM = """\
  for (int64_t r = 0; r < rows; r++, x += n, out += n) {{
    {kind} sum = 0;
    for (int64_t j = 0; j < n; j++) pb::put(out + j, {cast}(sum += pb::get(x + j)));
  }}"""
SOFTMAX = (
    READ_ROW
    + """\
    float top = row.data[0];
    for (int64_t j = 1; j < n; j++) top = std::max(top, row.data[j]);
    double sum = 0;
    for (int64_t j = 0; j < n; j++) sum += row.data[j] = std::exp(row.data[j] - top);
    for (int64_t j = 0; j < n; j++) pb::put(out + r * n + j, float(row.data[j] / sum));
  }"""
)
LAYER_NORM = (
    READ_ROW
    + _MOMENTS
    + """\
    float scale = 1 / std::sqrt(float(squares / n) + float(eps)), offset = -float(mean) * scale;
    for (int64_t j = 0; j < n; j++) {
      float y = std::fma(row.data[j], scale, offset);
      y = std::fma(y, weight ? pb::get(weight + j) : 1, bias ? pb::get(bias + j) : 0);
      pb::put(out + r * n + j, y);
    }
  }"""
)
GROUP_NORM = (
    READ_ROW
    + _MOMENTS
    + """\
    float inverse = 1 / std::sqrt(float(squares / n) + float(eps));
    for (int64_t j = 0; j < n; j++) {
      int64_t channel = r % groups * (n / size) + j / size;
      float scale = inverse * (weight ? pb::get(weight + channel) : 1);
      float offset = (bias ? pb::get(bias + channel) : 0) - scale * float(mean);
      pb::put(out + r * n + j, std::fma(row.data[j], scale, offset));
    }
  }"""
)
RMS_NORM = (
    READ_ROW
    + """\
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += double(row.data[j]) * row.data[j];
    float scale = float(1 / std::sqrt(squares / n + eps));
    for (int64_t j = 0; j < n; j++) {
      float y = row.data[j] * scale;
      if (weight) y *= pb::get(weight + j);
      pb::put(out + r * n + j, y);
    }
  }"""
)
PRODUCT = """\
  // x: batches of m rows, y: batches of n rows (of one batch if y_step is 0); each row has k elements.
  for (int64_t b = 0; b < batches; b++)
    for (int64_t i = 0; i < m; i++)
      for (int64_t j = 0; j < n; j++) {
        auto times = [](pb::vec p, pb::vec q) { return p * q; };
        float sum = pb::sum(k, times, x + (b * m + i) * k, y + b * y_step + j * k);
        sum *= alpha;
        if (bias) sum += pb::get(bias + (b * m + i) * bias_step + j);
        pb::put(out + (b * m + i) * n + j, sum);
      }"""
TAKE = """\
  for (int64_t r = 0; r < rows; r++) {
    int64_t from = pb::get(index + r);
    std::memcpy(out + r * bytes, x + (from < 0 ? from + count : from) * bytes, bytes);
  }"""
GATHER = """\
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < n; j++)
      std::memcpy(out + (r * n + j) * size, x + (r * count + pb::get(index + r * n + j)) * size, size);"""
SCATTER_ADD = """\
  pb::buffer row(count);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t j = 0; j < count; j++) row.data[j] = pb::get(out + r * count + j);
    for (int64_t j = 0; j < n; j++) row.data[pb::get(index + r * n + j)] += pb::get(x + r * n + j);
    for (int64_t j = 0; j < count; j++) pb::put(out + r * count + j, row.data[j]);
  }"""
FOLD = """\
  // x: for each plane and each place of the kernel, a value per window. Eager rounds each sum, in this order.
  int64_t down = (height + 2 * ph - dh * (kh - 1) - 1) / sh + 1;
  int64_t across = (width + 2 * pw - dw * (kw - 1) - 1) / sw + 1;
  for (int64_t p = 0; p < planes; p++, out += height * width)
    for (int64_t k = 0; k < kh * kw; k++)
      for (int64_t r = 0; r < down; r++)
        for (int64_t c = 0; c < across; c++, x++) {
          int64_t row = r * sh - ph + k / kw * dh, column = c * sw - pw + k % kw * dw;
          if (row < 0 || row >= height || column < 0 || column >= width) continue;
          auto to = out + row * width + column;
          pb::put(to, pb::get(to) + pb::get(x));
        }"""
PLACE = """\
  for (int64_t r = 0; r < rows; r++) std::memcpy(out + r * step + start, x + r * bytes, bytes);"""
MOVE = """\
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, from = 0;
    for (int64_t d = rank - 1; d >= 0; d--) {
      from += rest % sizes[d] * strides[d];
      rest /= sizes[d];
    }
    std::memcpy(out + i * size, x + from * size, size);
  }"""
NORMALIZE = (
    READ_ROW
    + """\
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += double(row.data[j]) * row.data[j];
    float length = pb::round<TYPE>(float(std::sqrt(squares)));
    length = pb::round<TYPE>(std::max(length, float(eps)));
    for (int64_t j = 0; j < n; j++) pb::put(out + r * n + j, row.data[j] / length);
  }"""
)
MSE_LOSS = """\
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    float difference = pb::get(x + i) - pb::get(y + i);
    sum += pb::round<TYPE>(difference * difference);
  }
  pb::put(out, float(sum / n));"""
WEIGHT_NORM = (
    READ_ROW
    + """\
    double squares = 0;
    for (int64_t j = 0; j < n; j++) squares += double(row.data[j]) * row.data[j];
    float factor = float(pb::get(g + r) / std::sqrt(squares));
    for (int64_t j = 0; j < n; j++) pb::put(out + r * n + j, row.data[j] * factor);
  }"""
)
