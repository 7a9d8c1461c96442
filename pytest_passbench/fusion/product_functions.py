"""The C++ functions of products of matrices and of convolutions in half precision (:mod:`.products`)."""

PRODUCT_FUNCTIONS = {
    "Steps Added": """\
struct Steps { int64_t matrix, row, column; };
template <class T> struct Added {  // what is added to a product, if anything
  const T* first;
  Steps steps;
  vec operator()(int64_t matrix, int64_t m, int64_t n, int64_t lanes) const {
    if (!first) return vec{};
    const T* p = first + matrix * steps.matrix + m * steps.row + n * steps.column;
    return steps.column == 1 ? pb::load(p, lanes) : gather(p, steps.column, lanes);
  }
};
""",
    "Order BY_FOUR IN_TURN FROM_ADDED TALL BROAD term_place laid_out laid_out_rows Sums chain_of_terms product_tile "
    "product_tiles": """\
// A product in tiles of TALL rows and BROAD columns. Both operands are laid out as floats before. At each place along
// the depth are the elements of TALL rows, in the room of a register, or those of BROAD columns.
constexpr int TALL = 6, BROAD = 2 * pb::L;
// How eager adds: every fourth term and then the four sums, or in turn, beginning with 0 or with what is to be added.
enum Order { BY_FOUR, IN_TURN, FROM_ADDED };
// Where term k of a sum lies.
template <Order ORDER> int64_t term_place(int64_t k, int64_t depth) {
  int64_t each = depth / 4, rest = depth % 4;
  return ORDER != BY_FOUR ? k : k >= 4 * each ? k - 3 * each : k % 4 * each + (k % 4 ? rest : 0) + k / 4;
}
// Lays out `count` lines of `depth` elements that lie `step` apart, with SIZE floats for each place along the depth.
template <Order ORDER, int SIZE, class T>
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
      for (int64_t i = 0; i < height; i++) pb::store(to + term_place<ORDER>(k + i, depth) * SIZE + j, rows[i]);
    }
}
template <Order ORDER, class T>
void laid_out_rows(float* to, const T* p, int64_t rows, int64_t depth, int64_t line, int64_t step) {
  for (int64_t m = 0; m < rows; m += TALL, to += pb::L * depth)
    laid_out<ORDER, pb::L>(to, p + m * line, rows - m < TALL ? rows - m : TALL, depth, line, step);
}
template <int ROWS> struct Sums { vec at[ROWS][2] = {}; };
template <int ROWS>
Sums<ROWS> chain_of_terms(const float*& left, const float*& right, int64_t count, Sums<ROWS> sums = {}) {
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
template <Order ORDER, int ROWS, class T, class F>
int64_t product_tile(T* out, const float* left, const float* right, int64_t m, int64_t columns, int64_t depth,
                     int64_t row, F added) {
  auto each = [&](auto f) {  // for each register of the tile
    for (int64_t i = 0; i < ROWS; i++)
      for (int64_t j = 0; j < columns; j += pb::L) f(i, j, columns - j < pb::L ? columns - j : pb::L);
  };
  Sums<ROWS> sums;
  if (ORDER == FROM_ADDED)
    each([&](int64_t i, int64_t j, int64_t lanes) { sums.at[i][j / pb::L] = added(m + i, j, lanes); });
  sums = chain_of_terms<ROWS>(left, right, ORDER == BY_FOUR ? depth / 4 + depth % 4 : depth, sums);
  for (int turn = 1; ORDER == BY_FOUR && turn < 4; turn++) {
    Sums<ROWS> more = chain_of_terms<ROWS>(left, right, depth / 4);
    for (int i = 0; i < ROWS; i++) sums.at[i][0] += more.at[i][0], sums.at[i][1] += more.at[i][1];
  }
  each([&](int64_t i, int64_t j, int64_t lanes) {
    vec sum = sums.at[i][j / pb::L];
    pb::store(out + (m + i) * row + j, ORDER == FROM_ADDED ? sum : sum + added(m + i, j, lanes), lanes);
  });
  return ROWS;
}
// Stores up to BROAD columns of a product, plus what `added(row, column, lanes)` returns.
template <Order ORDER, class T, class F>
void product_tiles(T* out, const float* left, const float* right, int64_t rows, int64_t columns, int64_t depth,
                   int64_t row, F added) {
  for (int64_t m = 0; m < rows;) {
    const float* p = left + m / TALL * pb::L * depth + m % TALL;
    if (rows - m >= TALL) m += product_tile<ORDER, TALL>(out, p, right, m, columns, depth, row, added);
    else if (rows - m >= 2) m += product_tile<ORDER, 2>(out, p, right, m, columns, depth, row, added);
    else m += product_tile<ORDER, 1>(out, p, right, m, columns, depth, row, added);
  }
}
""",
    "products": """\
template <Order ORDER, class T>
void products(T* out, const T* left, const T* right, const std::common_type_t<T>* added, int64_t count, int64_t rows,
              int64_t columns, int64_t depth, Steps o, Steps l, Steps r, Steps a) {
  pb::buffer block((rows + TALL - 1) / TALL * pb::L * depth), panel(BROAD * depth);
  for (int64_t matrix = 0; matrix < count; matrix++) {
    laid_out_rows<ORDER>(block.data, left + matrix * l.matrix, rows, depth, l.row, l.column);
    for (int64_t n = 0; n < columns; n += BROAD) {
      int64_t broad = columns - n < BROAD ? columns - n : BROAD;
      laid_out<ORDER, BROAD>(panel.data, right + matrix * r.matrix + n * r.column, broad, depth, r.column, r.row);
      auto more = [&](int64_t m, int64_t j, int64_t lanes) { return Added<T>{added, a}(matrix, m, n + j, lanes); };
      product_tiles<ORDER>(out + matrix * o.matrix + n, block.data, panel.data, rows, broad, depth, o.row, more);
    }
  }
}
""",
    "WIDE DEEP widened Dots add_dots row_of_sums dot_products dots": """\
// A product whose operands both lie along the depth. Eager adds registers of terms to eight registers in turn, and
// those left at the end to another one. Then it joins the first four registers with the last four, the first two of
// these with the last two and so on, and the lanes of the last register in the same way. Here DEEP rows and WIDE
// columns are computed together: as many sums as a register has lanes.
constexpr int DEEP = pb::L / 4, WIDE = 4;
template <class T>
void widened(float* to, const T* p, int64_t count, int64_t room, int64_t depth, int64_t line, int64_t step) {
  for (int64_t i = 0; i < count; i++, p += line) {
    int64_t k = 0;
    for (; step == 1 && k + pb::L <= depth; k += pb::L, to += pb::L) pb::store(to, pb::load(p + k));
    for (; k < depth; k++) *to++ = pb::get(p + k * step);
  }
  std::memset(to, 0, (room - count) * depth * sizeof(float));
}
struct Dots { vec at[pb::L] = {}; };
inline void add_dots(Dots& dots, const float* left, const float* right, int64_t k, int64_t end, int64_t step,
                     int64_t depth) {
  Dots sums = dots;
  for (; k < end; k += step) {
    vec y[WIDE];
#pragma GCC unroll 4
    for (int j = 0; j < WIDE; j++) y[j] = pb::load(right + j * depth + k);
#pragma GCC unroll 4
    for (int i = 0; i < DEEP; i++) {
      vec x = pb::load(left + i * depth + k);
#pragma GCC unroll 4
      for (int j = 0; j < WIDE; j++) sums.at[WIDE * i + j] = pb::fma(x, y[j], sums.at[WIDE * i + j]);
    }
  }
  dots = sums;
}
inline vec row_of_sums(Dots& dots) {
  transpose(dots.at);
  for (int half = pb::L / 2; half; half /= 2)
    for (int i = 0; i < half; i++) dots.at[i] += dots.at[i + half];
  return dots.at[0];
}
inline vec dot_products(const float* left, const float* right, int64_t depth) {
  int64_t whole = depth - depth % (8 * pb::L), even = depth - depth % (2 * pb::L);
  vec sums{};
  if (whole) {
    Dots waiting[4];  // for those that they are joined with
    int count = 0;
    for (int turn = 0; turn < 8; turn++) {
      int number = turn % 2 * 4 + turn / 2 % 2 * 2 + turn / 4;  // of eight registers, those far apart first
      Dots dots;
      add_dots(dots, left, right, number * pb::L, whole, 8 * pb::L, depth);
      for (int bits = turn; bits % 2; bits /= 2) {
        count--;
        for (int i = 0; i < pb::L; i++) dots.at[i] += waiting[count].at[i];
      }
      waiting[count++] = dots;
    }
    sums = row_of_sums(waiting[0]);
  }
  if (even > whole) {
    Dots rest;
    add_dots(rest, left, right, whole, even, pb::L, depth);
    sums += row_of_sums(rest);
  }
  for (int64_t k = even; k < depth; k++) {
    vec x{}, y{};
    for (int i = 0; i < pb::L; i++) x[i] = left[i / WIDE * depth + k], y[i] = right[i % WIDE * depth + k];
    sums = pb::fma(x, y, sums);
  }
  return sums;
}
template <class T>
void dots(T* out, const T* left, const T* right, const std::common_type_t<T>* added, int64_t count, int64_t rows,
          int64_t columns, int64_t depth, Steps o, Steps l, Steps r, Steps a) {
  int64_t room = (rows + DEEP - 1) / DEEP * DEEP;
  int64_t fitting = 4096 / (depth + 1) / WIDE * WIDE, width = fitting > WIDE ? fitting : WIDE;  // in a core's cache
  pb::buffer block(room * depth), panel(width * depth);
  for (int64_t matrix = 0; matrix < count; matrix++) {
    widened(block.data, left + matrix * l.matrix, rows, room, depth, l.row, l.column);
    for (int64_t n = 0; n < columns; n += width) {
      int64_t broad = columns - n < width ? columns - n : width;
      widened(panel.data, right + matrix * r.matrix + n * r.column, broad, (broad + WIDE - 1) / WIDE * WIDE, depth,
              r.column, r.row);
      for (int64_t m = 0; m < rows; m += DEEP)
        for (int64_t j = 0; j < broad; j += WIDE) {
          float sums[pb::L];
          pb::store(sums, dot_products(block.data + m * depth, panel.data + j * depth, depth));
          int64_t lanes = broad - j < WIDE ? broad - j : WIDE;
          for (int64_t i = 0; i < DEEP && m + i < rows; i++)
            pb::store(out + matrix * o.matrix + (m + i) * o.row + n + j,
                      pb::load(sums + WIDE * i, lanes) + Added<T>{added, a}(matrix, m + i, n + j, lanes), lanes);
        }
    }
  }
}
""",
    "Window with_margin convolution": """\
struct Window { int64_t size[3], kernel[3], result[3], stride[3], padding[3], dilation[3]; };
// Copies an image of some channels as floats into the middle of one that is larger by the padding.
template <class T>
void with_margin(float* to, const T* from, int64_t channels, const int64_t* margin, const Window& w) {
  for (int64_t c = 0; c < channels; c++)
    for (int64_t z = 0; z < w.size[0]; z++)
      for (int64_t y = 0; y < w.size[1]; y++, from += w.size[2]) {
        int64_t line = (c * margin[0] + z + w.padding[0]) * margin[1] + y + w.padding[1], x = 0;
        float* row = to + line * margin[2] + w.padding[2];
        for (; x + pb::L <= w.size[2]; x += pb::L) pb::store(row + x, pb::load(from + x));
        if (x < w.size[2]) pb::store(row + x, pb::load(from + x, w.size[2] - x), w.size[2] - x);
      }
}
// A convolution is a product of the weight, whose rows are the channels of the result, and of what lies under the
// kernel: a column for each place of the result. Eager adds its terms as those of such a product.
template <class T>
void convolution(T* out, const T* image, const T* weight, const std::common_type_t<T>* bias, int64_t count,
                 int64_t groups, int64_t channels, int64_t rows, const Window& w) {
  int64_t margin[3], depth = channels, places = w.result[0] * w.result[1] * w.result[2];
  for (int d = 0; d < 3; d++) margin[d] = w.size[d] + 2 * w.padding[d], depth *= w.kernel[d];
  int64_t plane = margin[0] * margin[1] * margin[2], line = w.result[2];
  bool close = w.stride[0] == 1 && w.stride[1] == 1 && w.stride[2] == 1;
  bool whole = close && margin[2] == line && (margin[1] == w.result[1] || w.result[0] == 1);
  // Columns in a row of the image are copied together. So panels may end with a line if few columns are lost by that.
  bool by_line = !whole && close && (4 * line >= 3 * ((line + BROAD - 1) / BROAD * BROAD) || rows < 2 * TALL);
  int64_t run = by_line ? line : places;
  pb::buffer padded(channels * plane + BROAD), block((rows + TALL - 1) / TALL * pb::L * depth), panel(BROAD * depth);
  std::memset(padded.data, 0, (channels * plane + BROAD) * sizeof(float));
  for (int64_t g = 0; g < groups; g++) {
    laid_out_rows<BY_FOUR>(block.data, weight + g * rows * depth, rows, depth, depth, 1);
    for (int64_t example = 0; example < count; example++) {
      int64_t number = example * groups + g;
      with_margin(padded.data, image + number * channels * w.size[0] * w.size[1] * w.size[2], channels, margin, w);
      for (int64_t n = 0, broad; n < places; n += broad) {
        int64_t rest = run - n % run, at[BROAD], k = 0;
        broad = rest < BROAD ? rest : BROAD;
        for (int64_t j = 0; j < BROAD; j++) {
          int64_t column = n + (j < broad ? j : broad - 1), y = column / line % w.result[1];
          int64_t z = column / line / w.result[1];
          at[j] = (z * w.stride[0] * margin[1] + y * w.stride[1]) * margin[2] + column % line * w.stride[2];
        }
        for (int64_t c = 0; c < channels; c++)
          for (int64_t z = 0; z < w.kernel[0]; z++)
            for (int64_t y = 0; y < w.kernel[1]; y++)
              for (int64_t x = 0; x < w.kernel[2]; x++, k++) {
                float* to = panel.data + term_place<BY_FOUR>(k, depth) * BROAD;
                const float* from = padded.data + c * plane + x * w.dilation[2]
                                  + (z * w.dilation[0] * margin[1] + y * w.dilation[1]) * margin[2];
                if (whole || by_line) std::memcpy(to, from + at[0], BROAD * sizeof(float));
                else for (int64_t j = 0; j < BROAD; j++) to[j] = from[at[j]];
              }
        const T* first = bias ? bias + g * rows : nullptr;
        auto added = [&](int64_t m, int64_t, int64_t) { return first ? pb::all(pb::get(first + m)) : vec{}; };
        T* to = out + number * rows * places + n;
        product_tiles<BY_FOUR>(to, block.data, panel.data, rows, broad, depth, places, added);
      }
    }
  }
}
""",
}
"""The functions by the names that each text defines."""
