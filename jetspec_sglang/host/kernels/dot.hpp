// How a linear layer multiplies: one step of the chain of additions behind an output.
//
// Weights and interleaved rows are words of four bytes: a float, or two bfloat16 inputs side by
// side. A step adds the products of one word of a row with the same word of kLanes outputs. Its
// arithmetic is fixed, so an output depends on the row, the weight and the kind of step alone.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "vec.hpp"

namespace jetspec {

enum Kind { kFloatDot = 0, kWidenedDot = 1, kPairDot = 2, kTileDot = 3 };

using Word = uint32_t;
constexpr int64_t kLine = 64 / sizeof(Word);  // words of a cache line

// kInputs: inputs of a row in a step. kWords: words that hold them in an interleaved row.
struct FloatDot {
  using Element = float;
  using Weights = Vec;
  static constexpr int64_t kInputs = 1, kWords = 1;

  static Weights weights(const Word* packed) { return Vec(load_words(packed)); }
  static void words(const float* inputs, Word* to) { std::memcpy(to, inputs, sizeof *to); }
  static Vec add(Vec sum, const Word* x, Weights w) {
    return fma(Vec(broadcast_word(x[0])), w, sum);
  }
};

// bfloat16 widened to float32, where products are exact: the first input's, then the second's.
struct WidenedDot {
  using Element = BFloat16;
  struct Weights {
    Vec first, second;
  };
  static constexpr int64_t kInputs = 2, kWords = 2;

  static Weights weights(const Word* packed) {
    const IntVec both = load_words(packed);
    return {Vec(both << 16), Vec(both & int32_t(0xffff0000))};
  }
  static void words(const BFloat16* inputs, Word* to) {
    to[0] = Word(inputs[0].bits) << 16;
    to[1] = Word(inputs[1].bits) << 16;
  }
  static Vec add(Vec sum, const Word* x, const Weights& w) {
    sum = fma(Vec(broadcast_word(x[0])), w.first, sum);
    return fma(Vec(broadcast_word(x[1])), w.second, sum);
  }
};

#if defined(__AVX512BF16__)
// VDPBF16PS: both products in one instruction, which takes denormals as zero.
struct PairDot {
  using Element = BFloat16;
  using Weights = IntVec;
  static constexpr int64_t kInputs = 2, kWords = 1;

  static Weights weights(const Word* packed) { return load_words(packed); }
  static void words(const BFloat16* inputs, Word* to) { std::memcpy(to, inputs, sizeof *to); }
  static Vec add(Vec sum, const Word* x, Weights w) {
    return _mm512_dpbf16_ps(sum, __m512bh(broadcast_word(x[0])), __m512bh(w));
  }
};
#endif

}  // namespace jetspec
