// The products of attention in float32, from a pool of any type.
#pragma once

#include <vector>

#include "kernels.hpp"
#include "plan.hpp"

namespace jetspec {

template <typename T>
class VectorMath {
 public:
  using Query = float;
  // Rows are computed in multiples of kRowStep, values in multiples of kValueStep, and keys that rows
  // share are mixed in multiples of kKeyStep.
  static constexpr int64_t kRowStep = 1, kValueStep = kLanes, kKeyStep = 1;

  VectorMath(const Problem& problem, int64_t kv_head, int64_t)
      : p_(problem),
        keys_(static_cast<const T*>(problem.k) + kv_head * problem.k_dim),
        values_(static_cast<const T*>(problem.v) + kv_head * problem.v_dim) {}

  static int64_t query_dim(int64_t k_dim) { return k_dim; }

  // scores[r][i] = queries[r] . K[slots[i]].
  void score(const float* queries, int64_t rows, const int32_t* slots, int64_t count,
             float* scores) {
    in_fours(rows, [&](auto four, int64_t x) {
      dot<four()>(queries + x * p_.k_dim, p_.k_dim, keys_, p_.k_stride, slots, count,
                  scores + x * kScoreStride);
    });
  }

  // What `mix` reads of a row, in the place of its scores.
  static void store_weights(float* scores, int64_t key, Vec weights) { store(scores + key, weights); }

  // acc[r] += weights[r][first + i] * V[slots[i]], over i in order.
  void mix(const float* weights, int64_t first, int64_t rows, const int32_t* slots, int64_t count,
           float* acc) {
    in_fours(rows, [&](auto four, int64_t x) {
      jetspec::mix<four()>(weights + x * kScoreStride + first, values_, p_.v_stride, slots, count,
                           acc + x * p_.v_dim, p_.v_dim);
    });
  }

 private:
  const Problem& p_;
  const T *keys_, *values_;
};

}  // namespace jetspec
