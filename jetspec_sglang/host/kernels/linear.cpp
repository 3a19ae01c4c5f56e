// x @ weight.T for the row counts of decoding and tree verification, in float32 and bfloat16.
//
// A weight is packed once into panels of kPanel outputs, each panel holding its steps (the inputs)
// from first to last. One output is one chain of steps (see dot.hpp) in that order, summed in
// float32 and rounded once, whatever rows are computed with it: a row's bits depend on the row and
// the weight alone.
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

#include "calls.hpp"
#include "dot.hpp"
#include "panel.hpp"
#include "pool.hpp"
#include "tiles.hpp"

namespace jetspec {
namespace {

#if defined(__AVX512F__)
constexpr int kMostRows = 14;  // 28 accumulators, two weights: the 32 registers, nearly
#else
constexpr int kMostRows = 6;  // 12 accumulators, two weights, one input of 16 registers
#endif
constexpr int64_t kGroupsAlone = 4;  // interleaved by the caller: less than waking a thread costs

// Part of the next panel that a walk over this one fetches: `lines` cache lines a step.
struct Ahead {
  const Word* from;
  int64_t lines;
};

// R interleaved rows and a panel, `steps` long: out[r * out_stride + j] for the first `width` of j.
template <typename Dot, int R>
void walk(const Word* rows, const Word* panel, int64_t steps, const typename Dot::Element* bias,
          typename Dot::Element* out, int64_t out_stride, int64_t width, Ahead ahead) {
  Vec low[R], high[R];
  for (int r = 0; r < R; ++r) low[r] = high[r] = Vec{};
  for (int64_t k = 0; k < steps; ++k, rows += R * Dot::kWords, panel += kPanel) {
    for (int64_t line = 0; line < ahead.lines; ++line)
      _mm_prefetch(reinterpret_cast<const char*>(ahead.from + line * kLine), _MM_HINT_T1);
    ahead.from += ahead.lines * kLine;
    const auto a = Dot::weights(panel), b = Dot::weights(panel + kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      low[r] = Dot::add(low[r], rows + r * Dot::kWords, a);
      high[r] = Dot::add(high[r], rows + r * Dot::kWords, b);
    }
  }
  for (int r = 0; r < R; ++r) {
    float sums[kPanel];
    store(sums, low[r]);
    store(sums + kLanes, high[r]);
    finish(sums, bias, out + r * out_stride, width);
  }
}

template <typename Dot, int... R>
constexpr auto walks(std::integer_sequence<int, R...>) {
  return std::array{&walk<Dot, R + 1>...};
}
template <typename Dot>
constexpr auto kWalks = walks<Dot>(std::make_integer_sequence<int, kMostRows>());

// Rows in groups of nearly equal size, each group's inputs interleaved for `walk`.
struct Groups {
  int64_t rows, count = (rows + kMostRows - 1) / kMostRows;

  int64_t first(int64_t group) const { return rows * group / count; }
  int64_t size(int64_t group) const { return first(group + 1) - first(group); }
};

// A step beyond the row's end reads zeros in place of the inputs that it lacks.
template <typename Dot>
void interleave(const typename Dot::Element* x, int64_t stride, int64_t rows, int64_t depth,
                Word* to) {
  const int64_t whole = depth / Dot::kInputs, left = depth % Dot::kInputs;
  for (int64_t k = 0; k < whole; ++k)
    for (int64_t r = 0; r < rows; ++r, to += Dot::kWords)
      Dot::words(x + r * stride + k * Dot::kInputs, to);
  for (int64_t r = 0; left && r < rows; ++r, to += Dot::kWords) {
    typename Dot::Element last[Dot::kInputs] = {};
    std::memcpy(last, x + r * stride + whole * Dot::kInputs, left * sizeof *last);
    Dot::words(last, to);
  }
}

template <typename Element, int64_t kInputs>
void pack(const Element* weight, int64_t outputs, int64_t depth, Element* packed) {
  const int64_t steps = steps_of(depth, kInputs);
  Pool::run(panels_of(outputs), true, [=](int64_t panel) {
    const int64_t first = panel * kPanel, width = std::min(kPanel, outputs - first);
    Element* to = packed + first * steps * kInputs;
    for (int64_t k = 0; k < steps * kInputs; k += kInputs)
      for (int64_t j = 0; j < kPanel; ++j)
        for (int64_t i = k; i < k + kInputs; ++i)
          *to++ = j < width && i < depth ? weight[(first + j) * depth + i] : Element{};
  });
}

template <typename Dot>
void product(const void* from, int64_t stride, int64_t rows, int64_t depth, const void* weights,
             int64_t outputs, const void* bias_from, void* to) {
  using Element = typename Dot::Element;
  const auto* const x = static_cast<const Element*>(from);
  const auto* const packed = static_cast<const Word*>(weights);
  const auto* const bias = static_cast<const Element*>(bias_from);
  auto* const out = static_cast<Element*>(to);
  const int64_t steps = steps_of(depth, Dot::kInputs), words = steps * Dot::kWords;
  static thread_local std::vector<Word> memory;
  memory.resize(rows * words);
  Word* const interleaved = memory.data();
  const Groups groups{rows};
  const int64_t panels = panels_of(outputs);
  const bool worth_threads = rows * depth * outputs >= kWorthThreads;
  Pool::run(groups.count, worth_threads && groups.count > kGroupsAlone, [&](int64_t group) {
    const int64_t first = groups.first(group);
    interleave<Dot>(x + first * stride, stride, groups.size(group), depth,
                    interleaved + first * words);
  });
  // The first walk over a panel fetches the whole next one, or the first two a half each.
  const int64_t shares = std::min<int64_t>(groups.count, 2);
  const int64_t lines = kPanel / kLine / shares;
  Pool::run(panels, worth_threads, [&](int64_t panel) {
    const int64_t at = panel * kPanel, width = std::min(kPanel, outputs - at);
    const Word* panel_words = packed + at * steps;
    for (int64_t group = 0; group < groups.count; ++group) {
      const int64_t first = groups.first(group), size = groups.size(group);
      const bool fetch = panel + 1 < panels && group < shares;
      const Word* next = panel_words + kPanel * steps + group * lines * kLine * steps;
      kWalks<Dot>[size - 1](interleaved + first * words, panel_words, steps,
                            bias ? bias + at : nullptr, out + first * outputs + at, outputs, width,
                            {next, fetch ? lines : 0});
    }
  });
}

}  // namespace
}  // namespace jetspec

using namespace jetspec;

#pragma GCC visibility push(default)
extern "C" {

int64_t jetspec_linear_panel() { return kPanel; }

// Whether this process can use the kind of step.
int jetspec_linear_has(int kind) {
  if (kind == kTileDot) return tiles_allowed();
#if defined(__AVX512BF16__)
  if (kind == kPairDot) return true;
#endif
  return kind == kFloatDot || kind == kWidenedDot;
}

// weight [outputs, depth] -> packed [ceil(outputs / kPanel), steps, kPanel, inputs of a step],
// filled up with zeros. float32 has one input a step, bfloat16 two.
void jetspec_linear_pack(const void* weight, int64_t outputs, int64_t depth, void* packed,
                         int kind) {
  if (kind == kFloatDot)
    pack<float, FloatDot::kInputs>(static_cast<const float*>(weight), outputs, depth,
                                   static_cast<float*>(packed));
  else
    pack<BFloat16, WidenedDot::kInputs>(static_cast<const BFloat16*>(weight), outputs, depth,
                                        static_cast<BFloat16*>(packed));
}

// x [rows, depth] with rows `stride` apart -> out [rows, outputs], contiguous. `bias` may be null.
void jetspec_linear(const void* x, int64_t stride, int64_t rows, int64_t depth, const void* packed,
                    int64_t outputs, const void* bias, void* out, int kind) {
  if (rows == 0) return;
  if (kind == kFloatDot) product<FloatDot>(x, stride, rows, depth, packed, outputs, bias, out);
  if (kind == kWidenedDot) product<WidenedDot>(x, stride, rows, depth, packed, outputs, bias, out);
#if defined(__AVX512BF16__)
  if (kind == kPairDot) product<PairDot>(x, stride, rows, depth, packed, outputs, bias, out);
#endif
  if (kind == kTileDot)
    multiply_tiles({static_cast<const BFloat16*>(x), stride, rows, depth,
                    static_cast<const Word*>(packed), outputs, static_cast<const BFloat16*>(bias),
                    static_cast<BFloat16*>(out)});
}

}  // extern "C"
#pragma GCC visibility pop
