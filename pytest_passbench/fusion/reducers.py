"""The C++ types that reduce a row in a kernel: sums in orders of eager's, moments, running sums, greatest values."""

REDUCER_TYPES = {
    "Sum": """\
// Joins the values of a row. It adds 128 values at a time, so that long rows lose no accuracy, to two sums
// in turn: an addition waits for the one before.
template <class V> struct Sum {
  V all{}, next{}, last{};
  int count = 0;
  void add(V x) {
    if constexpr (std::is_same_v<V, vec>) x += next, next = last, last = x;
    else next += x;  // it has no register of its own, so that moves are slow
    if (++count == 128) { all += next + last; next = last = V{}; count = 0; }
  }
  void add(V x, All) { add(x); }
  void add(V x, int64_t lanes) { add(part(x, lanes, V{})); }
  V lanes() const { return all + (next + last); }
  V row() const {
    V x = lanes();
    if constexpr (std::is_same_v<V, vec>) return pb::fold(x, [](vec a, vec b) { return a + b; });
    for (int i = 1; i < pb::L; i++) x[0] += x[i];
    return V{} + x[0];
  }
};
""",
    "InDoubles": """\
// Adds floats, or their squared distances to `mean`, as doubles.
template <bool SQUARED> struct InDoubles {
  pb::dvec mean[2] = {}, sums[2] = {};
  InDoubles(const doubles& x = doubles{}) { std::memcpy(mean, &x, sizeof x); }
  void add(vec x) {
    typename pb::Floats<pb::L / 2>::type halves[2];
    std::memcpy(halves, &x, sizeof x);
    for (int i = 0; i < 2; i++) {
      pb::dvec d = __builtin_convertvector(halves[i], pb::dvec) - mean[i];
      sums[i] += SQUARED ? d * d : d;
    }
  }
  void add(vec x, All) { add(x); }
  void add(vec x, int64_t lanes) {
    double first = mean[0][0];
    for (int64_t i = 0; i < lanes; i++) sums[0][0] += SQUARED ? (x[i] - first) * (x[i] - first) : x[i];
  }
  doubles lanes() const {
    doubles x;
    std::memcpy(&x, sums, sizeof x);
    return x;
  }
  doubles row() const {
    double total = 0;
    for (int i = 0; i < pb::L; i++) total += sums[i / (pb::L / 2)][i % (pb::L / 2)];
    return doubles{} + total;
  }
};
""",
    "Cascade": """\
// Adds registers in the order of torch.sum for up to 65,536 rows: 16 at a time, then 16 of those, and so on.
// torch.sum itself adds the columns beyond a multiple of 32 in another order.
template <class V> struct Cascade {
  V sums[4] = {};
  int64_t count = 0;
  void add(V x) {
    sums[0] += x;
    if (++count % 16) return;
    for (int level = 1; level < 4; level++) {
      sums[level] += sums[level - 1];
      sums[level - 1] = V{};
      if (count >> (4 * level) & 15) break;
    }
  }
  V lanes() const { return sums[0] + sums[1] + sums[2] + sums[3]; }
};
""",
    "Lanes": """\
// Adds a row as torch's softmax does: in the lanes of a register, and these in pairs. The terms left are added one by
// one (APART, for halves), or in the first lanes (for floats) if there is a whole register.
template <bool APART> struct Lanes {
  vec all{}, left{};
  int64_t count = 0;
  bool whole = false;
  void add(vec x, All) { all += x, whole = true; }
  void add(vec x, int64_t lanes) {
    if (APART) left = x, count = lanes;
    else if (whole) all += part(x, lanes, vec{});
    else for (int64_t i = 0; i < lanes; i++) all[0] += x[i];
  }
  vec row() const {
    vec x = pb::fold(all, [](vec a, vec b) { return a + b; });
    for (int64_t i = 0; i < count; i++) x += left[i];
    return x;
  }
};
""",
    "LanesOfRows": """\
// Adds rows of which each has a lane, in the same order as those that lie along registers.
template <bool APART> struct LanesOfRows {
  vec sums[pb::L]{}, left[pb::L];
  int64_t count = 0;
  void add(vec x) {
    left[count++ % pb::L] = x;
    if (count % pb::L == 0) join(pb::L);
  }
  void join(int64_t terms) {
    for (int i = 0; i < terms; i++) sums[i] += left[i];
  }
  vec lanes() {
    int64_t rest = count % pb::L;
    if (!APART && count >= pb::L) join(rest), rest = 0;
    for (int half = pb::L / 2; half; half /= 2) for (int i = 0; i < half; i++) sums[i] += sums[i + half];
    for (int64_t i = 0; i < rest; i++) sums[0] += left[i];
    return sums[0];
  }
};
""",
    "Chain": """\
template <class V> struct Chain {  // adds each term in turn, as eager's norm of float16 does
  V all{};
  void add(V x) { all += x; }
  void add(V x, All) { add(x, pb::L); }
  void add(V x, int64_t lanes) {
    for (int64_t i = 0; i < lanes; i++) all[0] += x[i];
  }
  V lanes() const { return all; }
  V row() const { return V{} + all[0]; }
};
""",
    "Moments": """\
// The mean of a row and the sum of squared distances from it, with the bits of torch's norms of halves: 16 chains,
// each begun anew after 16 steps, are joined in pairs. A value is a float of one row, or a register of many rows.
// Torch's compiler fused the last product of what is left for float16 alone.
typedef float eight __attribute__((vector_size(32)));
template <class V, class T> struct Moments {
  static constexpr bool one = std::is_same_v<V, float>;
  static constexpr int W = 16, WHOLE = 16 * W, K = one ? 1 : 8;
  using C = std::conditional_t<one, eight, vec>;
  struct Chains { int64_t n; C mean[K], squares[K]; };  // eight chains of n values each
  V held[WHOLE + pb::L], mean{}, total{};  // values to come, and the results
  Chains joined[24];  // of 16 steps, of twice as many, and so on
  int64_t count = 0, joins = 0;
  int levels = 0;
  void add(int level, int64_t n, const C* mean, const C* squares) {
    Chains& to = joined[level];
    if (level == levels) joined[levels++] = {};
    C part = C{} + float(n) / float(to.n + n), before = C{} + float(to.n);
    for (int k = 0; k < K; k++) {
      C d = mean[k] - to.mean[k], product = part * d;
      to.mean[k] += product;
      to.squares[k] = pb::fma(d * before, product, to.squares[k] + squares[k]);
    }
    to.n += n;
  }
  void join(int64_t steps) {
    static constexpr float parts[16] = {1, 1 / 2.f, 1 / 3.f, 1 / 4.f, 1 / 5.f, 1 / 6.f, 1 / 7.f, 1 / 8.f, 1 / 9.f,
      1 / 10.f, 1 / 11.f, 1 / 12.f, 1 / 13.f, 1 / 14.f, 1 / 15.f, 1 / 16.f};
    C means[2 * K], squares[2 * K];
    for (int k = 0; k < 2 * K; k++) {
      C x, m{}, s{};
      for (int64_t j = 0; j < steps; j++) {
        std::memcpy(&x, held + j * W + k * (W / (2 * K)), sizeof x);
        C d = x - m;
        m = pb::fma(d, C{} + parts[j], m);
        s = pb::fma(d, x - m, s);
      }
      means[k] = m;
      squares[k] = s;
    }
    add(0, steps, means, squares);
    add(0, steps, means + K, squares + K);
    joins++;
    for (int level = 0; !(joins >> level & 1); level++) {
      add(level + 1, joined[level].n, joined[level].mean, joined[level].squares);
      joined[level] = {};
    }
    count -= steps * W;
    std::memmove(held, held + steps * W, count * sizeof(V));
  }
  void add(vec x, int64_t lanes) {
    pb::store(held + count, x, lanes);
    if ((count += lanes) >= WHOLE) join(16);
  }
  void add(vec x, All) {
    pb::store(held + count, x);
    if ((count += pb::L) >= WHOLE) join(16);
  }
  void add(vec x) {
    held[count++] = x;
    if (count == WHOLE) join(16);
  }
  void end() {
    if (count >= W) join(count / W);
    for (int level = 1; level < levels; level++) {
      if (joined[level].n) add(0, joined[level].n, joined[level].mean, joined[level].squares);
    }
    for (int64_t i = 0; i < count; i++) {
      V d = held[i] - mean;
      mean += d / (V{} + float(i + 1));
      if constexpr (!std::is_same_v<T, pb::f16>) total += d * (held[i] - mean);
      else if constexpr (one) total = __builtin_fmaf(d, held[i] - mean, total);
      else total = pb::fma(d, held[i] - mean, total);
    }
    for (int i = 0; i < 8 && levels; i++) {
      int64_t n = joined[0].n;
      float part = float(n) / float(count + i * n + n), before = float(count + i * n);
      if constexpr (one) {
        float d = joined[0].mean[0][i] - mean;
        mean = __builtin_fmaf(part, d, mean);
        total += __builtin_fmaf(d * d * part, before, joined[0].squares[0][i]);
      } else {
        vec d = joined[0].mean[i] - mean;
        mean = pb::fma(vec{} + part, d, mean);
        total += pb::fma(d * d * part, vec{} + before, joined[0].squares[i]);
      }
    }
  }
  vec row() { end(); return pb::all(mean); }
  vec lanes() { end(); return mean; }
  vec squares() const { return vec{} + total; }
};
""",
    "Ordered": """\
struct Ordered {  // adds a row in the order of torch.sum, whose bits show where they are rounded twice
  float* terms;
  int64_t n = 0;
  void add(vec x, All) { pb::store(terms + n, x); n += pb::L; }
  void add(vec x, int64_t lanes) { pb::store(terms + n, x); n += lanes; }  // whole, as a load waits longer for parts
  vec row() const {
    if (n >= 8) return pb::all(pb::sum_as_torch(n, terms));
    float chains[4] = {};  // of which the first one takes what is left after four terms
    for (int64_t i = 0; i < n; i++) chains[i < 4 ? i : 0] += terms[i];
    return pb::all(chains[0] + chains[1] + chains[2] + chains[3]);
  }
};
""",
    "Running": """\
template <class V> struct Running {  // the sum so far: of each lane, or along the lanes
  std::conditional_t<std::is_same_v<V, vec>, double, int64_t> so_far[pb::L] = {};
  V add(V x) {
    for (int i = 0; i < pb::L; i++) x[i] = so_far[i] += x[i];
    return x;
  }
  V add(V x, int64_t lanes) {
    for (int64_t i = 0; i < lanes; i++) x[i] = so_far[0] += x[i];
    return x;
  }
};
""",
    "Greatest GreatestOf": """\
template <class V> struct Greatest {
  using E = decltype(V{}[0] + 0);
  V all = V{} + E(std::is_integral_v<E> ? double(INT64_MIN) : -__builtin_inf());
  void add(V x) { all = greater(x, all); }
  void add(V x, All) { add(x); }
  void add(V x, int64_t lanes) { add(part(x, lanes, all)); }
  V lanes() const { return all; }
  V row() const {
    auto x = all[0];
    for (int i = 1; i < pb::L; i++) x = greater(x, all[i]);
    return V{} + x;
  }
};
// Compares with four values in turn, since a comparison waits for the one before.
template <vec (*JOIN)(vec, vec)> struct GreatestOf {
  vec next = vec{} - __builtin_inff(), second = next, third = next, last = next;
  void add(vec x) {
    x = JOIN(x, next);
    next = second, second = third, third = last, last = x;
  }
  void add(vec x, All) { add(x); }
  void add(vec x, int64_t lanes) { add(part(x, lanes, next)); }
  vec lanes() const { return JOIN(JOIN(next, second), JOIN(third, last)); }
  vec row() const { return pb::fold(lanes(), JOIN); }
};
template <> struct Greatest<vec> : GreatestOf<greater<vec>> {};
""",
}
"""The types by their names. A kernel's text has those that it needs, behind the functions of the prelude."""
