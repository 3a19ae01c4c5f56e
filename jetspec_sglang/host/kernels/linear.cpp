// x @ weight.T in float32 for the row counts of decoding and tree verification.
//
// A weight is packed once into panels of kPanel outputs, each panel holding its depth (the inputs)
// from first to last. One output is one chain of fused multiply-adds over the depth, in that order,
// whatever rows are computed with it: a row's bits depend on the row and the weight alone.
//
// With few rows the time is memory's, with many the arithmetic's; between the two lies the rows of
// a tree, where both count. There the rows of a panel are walked in groups that fit the registers,
// and each walk fetches its share of the next panel, so that arithmetic hides the memory's time.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "pool.hpp"
#include "vec.hpp"

namespace jetspec {
namespace {

#if defined(__AVX512F__)
constexpr int kMostRows = 14;  // 28 accumulators, two weights: the 32 registers, nearly
#else
constexpr int kMostRows = 6;  // 12 accumulators, two weights, one input of 16 registers
#endif
constexpr int64_t kPanel = 2 * kLanes;
constexpr int64_t kLine = 64 / sizeof(float);
constexpr int64_t kWorthThreads = 1 << 16;  // multiply-adds
constexpr int64_t kGroupsAlone = 4;  // interleaved by the caller: less than waking a thread costs

// Part of the next panel that a walk over this one fetches: `lines` cache lines a step.
struct Ahead {
  const float* from;
  int64_t lines;
};

// rows[k * R + r] and panel[k * kPanel + j]: out[r * out_stride + j] for the first `width` of j.
template <int R>
void walk(const float* rows, const float* panel, int64_t depth, const float* bias, float* out,
          int64_t out_stride, int64_t width, Ahead ahead) {
  Vec low[R], high[R];
  for (int r = 0; r < R; ++r) low[r] = high[r] = Vec{};
  for (int64_t k = 0; k < depth; ++k, rows += R, panel += kPanel) {
    for (int64_t line = 0; line < ahead.lines; ++line)
      _mm_prefetch(reinterpret_cast<const char*>(ahead.from + line * kLine), _MM_HINT_T1);
    ahead.from += ahead.lines * kLine;
    const Vec a = load(panel), b = load(panel + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Vec x = broadcast(rows[r]);
      low[r] = fma(x, a, low[r]);
      high[r] = fma(x, b, high[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    float results[kPanel];
    store(results, low[r]);
    store(results + kLanes, high[r]);
    for (int64_t j = 0; bias && j < width; ++j) results[j] += bias[j];
    std::memcpy(out + r * out_stride, results, width * sizeof(float));
  }
}

using Walk = decltype(&walk<1>);

template <int... R>
constexpr std::array<Walk, sizeof...(R)> walks(std::integer_sequence<int, R...>) {
  return {walk<R + 1>...};
}
constexpr auto kWalks = walks(std::make_integer_sequence<int, kMostRows>());

// Rows in groups of nearly equal size, each group's inputs interleaved for `walk`.
struct Groups {
  int64_t rows, count = (rows + kMostRows - 1) / kMostRows;

  int64_t first(int64_t group) const { return rows * group / count; }
  int64_t size(int64_t group) const { return first(group + 1) - first(group); }
};

void interleave(const float* x, int64_t stride, int64_t rows, int64_t depth, float* to) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t r = 0; r < rows; ++r) *to++ = x[r * stride + k];
}

}  // namespace
}  // namespace jetspec

using namespace jetspec;

#pragma GCC visibility push(default)
extern "C" {

int64_t jetspec_linear_panel() { return kPanel; }

// weight [outputs, depth] -> packed [ceil(outputs / kPanel), depth, kPanel], filled up with zeros.
void jetspec_linear_pack(const float* weight, int64_t outputs, int64_t depth, float* packed) {
  Pool::run((outputs + kPanel - 1) / kPanel, true, [=](int64_t panel) {
    const int64_t first = panel * kPanel, width = std::min(kPanel, outputs - first);
    float* to = packed + first * depth;
    for (int64_t k = 0; k < depth; ++k, to += kPanel)
      for (int64_t j = 0; j < kPanel; ++j) to[j] = j < width ? weight[(first + j) * depth + k] : 0;
  });
}

// x [rows, depth] with rows `stride` apart -> out [rows, outputs], contiguous. `bias` may be null.
void jetspec_linear(const float* x, int64_t stride, int64_t rows, int64_t depth,
                    const float* packed, int64_t outputs, const float* bias, float* out) {
  if (rows == 0) return;
  static thread_local std::vector<float> memory;
  memory.resize(rows * depth);
  float* const interleaved = memory.data();
  const Groups groups{rows};
  const int64_t panels = (outputs + kPanel - 1) / kPanel;
  const bool worth_threads = rows * depth * outputs >= kWorthThreads;
  Pool::run(groups.count, worth_threads && groups.count > kGroupsAlone, [&](int64_t group) {
    const int64_t first = groups.first(group);
    interleave(x + first * stride, stride, groups.size(group), depth, interleaved + first * depth);
  });
  const int64_t weights_of_panel = kPanel * depth;
  // The first walk over a panel fetches the whole next one, or the first two a half each.
  const int64_t shares = std::min<int64_t>(groups.count, 2);
  const int64_t lines = kPanel / kLine / shares;
  Pool::run(panels, worth_threads, [&](int64_t panel) {
    const int64_t at = panel * kPanel, width = std::min(kPanel, outputs - at);
    const float* weights = packed + at * depth;
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = groups.first(group), size = groups.size(group);
      const bool fetch = panel + 1 < panels && group < shares;
      const float* next = weights + weights_of_panel + group * lines * kLine * depth;
      kWalks[size - 1](interleaved + first * depth, weights, depth, bias ? bias + at : nullptr,
                       out + first * outputs + at, outputs, width, {next, fetch ? lines : 0});
    }
  });
}

}  // extern "C"
#pragma GCC visibility pop
