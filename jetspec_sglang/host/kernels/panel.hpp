// A packed weight, and how sums become outputs, for every kind of step (see dot.hpp).
//
// A weight lies in panels of kPanel outputs. A panel holds its steps from first to last, a step one
// word of each output. What a panel or a last step lacks is filled up with zeros.
#pragma once

#include <algorithm>
#include <cstdint>

#include "vec.hpp"

namespace jetspec {

constexpr int64_t kPanel = 2 * kLanes;
constexpr int64_t kWorthThreads = 1 << 16;  // multiply-adds

inline int64_t steps_of(int64_t depth, int64_t inputs) { return (depth + inputs - 1) / inputs; }
inline int64_t panels_of(int64_t outputs) { return (outputs + kPanel - 1) / kPanel; }

// kPanel sums, each plus its bias and rounded once, to `out`.
template <typename Element>
void finish_all(const float* sums, const Element* bias, Element* out) {
  for (int64_t at = 0; at < kPanel; at += kLanes)
    store(out + at, bias ? load(sums + at) + load(bias + at) : load(sums + at));
}

// The same for the first `width` of them.
template <typename Element>
void finish(const float* sums, const Element* bias, Element* out, int64_t width) {
  if (width == kPanel) return finish_all(sums, bias, out);
  Element some[kPanel] = {}, rounded[kPanel];
  if (bias) std::copy(bias, bias + width, some);
  finish_all(sums, bias ? some : nullptr, rounded);
  std::copy(rounded, rounded + width, out);
}

}  // namespace jetspec
