// The products of attention on vectors, over up to four query rows at a time, and the softmax state.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>

#include "vec.hpp"

namespace jetspec {

constexpr int64_t kChunk = 128;                // keys whose softmax is computed by itself
constexpr int64_t kScoreStride = kChunk + 32;  // `score` may overrun its keys
constexpr float kInf = std::numeric_limits<float>::infinity();

// Calls f(integral_constant<rows>, x) over tiles of at most four rows.
template <typename F>
void in_fours(int64_t rows, F&& f) {
  int64_t x = 0;
  for (; x + 4 <= rows; x += 4) f(std::integral_constant<int, 4>(), x);
  if (rows - x == 3) f(std::integral_constant<int, 3>(), x);
  if (rows - x == 2) f(std::integral_constant<int, 2>(), x);
  if (rows - x == 1) f(std::integral_constant<int, 1>(), x);
}

// scores[r][i] = q[r] . K[slots[i]]. May write up to 15 entries past `count`.
template <int kRows, typename T>
void dot(const float* q, int64_t dim, const T* keys, int64_t stride, const int32_t* slots,
         int64_t count, float* scores) {
  constexpr int kKeys = kLanes / kRows;
  for (int64_t at = 0; at < count; at += kKeys) {
    const T* key[kKeys];
    for (int i = 0; i < kKeys; ++i) key[i] = keys + stride * slots[std::min(at + i, count - 1)];
    Vec acc[kLanes] = {};
    for (int64_t d = 0; d < dim; d += kLanes) {
      Vec k[kKeys];
#pragma GCC unroll 16
      for (int i = 0; i < kKeys; ++i) k[i] = load(key[i] + d);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const Vec row = load(q + r * dim + d);
#pragma GCC unroll 16
        for (int i = 0; i < kKeys; ++i) acc[r * kKeys + i] = fma(row, k[i], acc[r * kKeys + i]);
      }
    }
    float sums[kLanes];
    store(sums, sum_each(acc));
    for (int r = 0; r < kRows; ++r)
      std::memcpy(scores + r * kScoreStride + at, sums + r * kKeys, kKeys * sizeof(float));
  }
}

// acc[r][d..] += sum over i, in order, of weights[r][i] * V[slots[i]][d..].
template <int kRows, int kVecs, typename T>
void mix_columns(const float* weights, const T* values, int64_t stride, const int32_t* slots,
                 int64_t count, float* acc, int64_t dim) {
  Vec a[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kVecs; ++b) a[r][b] = load(acc + r * dim + b * kLanes);
  for (int64_t i = 0; i < count; ++i) {
    const T* value = values + stride * slots[i];
    Vec v[kVecs];
#pragma GCC unroll 8
    for (int b = 0; b < kVecs; ++b) v[b] = load(value + b * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const Vec weight = broadcast(weights[r * kScoreStride + i]);
#pragma GCC unroll 8
      for (int b = 0; b < kVecs; ++b) a[r][b] = fma(weight, v[b], a[r][b]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 8
    for (int b = 0; b < kVecs; ++b) store(acc + r * dim + b * kLanes, a[r][b]);
}

template <int kRows, typename T>
void mix(const float* weights, const T* values, int64_t stride, const int32_t* slots,
         int64_t count, float* acc, int64_t dim) {
  constexpr int kVecs = kRows > 2 ? kLanes / 4 : 8;
  int64_t d = 0;
  for (; d + kVecs * kLanes <= dim; d += kVecs * kLanes)
    mix_columns<kRows, kVecs>(weights, values + d, stride, slots, count, acc + d, dim);
  for (; d + 2 * kLanes <= dim; d += 2 * kLanes)
    mix_columns<kRows, 2>(weights, values + d, stride, slots, count, acc + d, dim);
  for (; d < dim; d += kLanes)
    mix_columns<kRows, 1>(weights, values + d, stride, slots, count, acc + d, dim);
}

// Softmax state of some (row, head) pairs: the largest score, the sum of the weights relative to
// it, and the weighted sum of values. No key yet: top = -inf.
struct State {
  float *acc, *top, *total;

  State(float* memory, int64_t rows, int64_t dim)
      : acc(memory), top(acc + rows * dim), total(top + rows) {}
  static int64_t floats(int64_t rows, int64_t dim) { return rows * (dim + 2); }

  void clear(int64_t rows, int64_t dim) {
    std::fill(acc, acc + rows * dim, 0.0f);
    std::fill(top, top + rows, -kInf);
    std::fill(total, total + rows, 0.0f);
  }
  void fold(const State& chunk, int64_t rows, int64_t dim) {
    for (int64_t x = 0; x < rows; ++x) {
      if (chunk.top[x] == -kInf) continue;
      const float above = std::max(top[x], chunk.top[x]);
      const Vec mine = exp_negative(broadcast(top[x] - above));
      const Vec theirs = exp_negative(broadcast(chunk.top[x] - above));
      top[x] = above;
      total[x] = fma(broadcast(chunk.total[x]), theirs, total[x] * mine)[0];
      for (int64_t d = x * dim; d < (x + 1) * dim; d += kLanes)
        store(acc + d, fma(load(chunk.acc + d), theirs, load(acc + d) * mine));
    }
  }
};

}  // namespace jetspec
