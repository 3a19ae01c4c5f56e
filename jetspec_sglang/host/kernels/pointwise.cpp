// What lies between a decoder layer's GEMMs, one pass each: RMSNorm with its residual, SiLU times
// the up projection, rotary embedding. Rows are computed one by one in float32, so a row's bits do
// not depend on the others or on the number of threads.
#include <cmath>
#include <vector>

#include "calls.hpp"
#include "plan.hpp"
#include "pool.hpp"

namespace jetspec {
namespace {

constexpr int64_t kWorthRows = 1 << 17;  // elements from which threads pay off

template <typename F>
void each_row(int64_t rows, int64_t width, F&& f) {
  Pool::run(rows, rows * width >= kWorthRows, f);
}

template <typename T>
void rms_norm(const T* x, int64_t stride, const T* residual, int64_t residual_stride,
              const T* weight, T* out, T* residual_out, int64_t rows, int64_t dim, float eps) {
  each_row(rows, dim, [=](int64_t row) {
    static thread_local std::vector<float> sums;
    sums.resize(dim);
    const T* from = x + row * stride;
    Vec squares = {};
    for (int64_t d = 0; d < dim; d += kLanes) {
      Vec v = load(from + d);
      if (residual) {
        v = v + load(residual + row * residual_stride + d);
        store(residual_out + row * dim + d, v);
      }
      store(sums.data() + d, v);
      squares = fma(v, v, squares);
    }
    const Vec scale = broadcast(1.0f / std::sqrt(sum(squares) / float(dim) + eps));
    for (int64_t d = 0; d < dim; d += kLanes)
      store(out + row * dim + d, load(sums.data() + d) * scale * load(weight + d));
  });
}

template <typename T>
void silu_and_mul(const T* x, int64_t stride, T* out, int64_t rows, int64_t dim) {
  each_row(rows, dim, [=](int64_t row) {
    const T* gate = x + row * stride;
    for (int64_t d = 0; d < dim; d += kLanes) {
      const Vec g = load(gate + d);
      const Vec e = exp_negative(g < 0.0f ? g : -g);
      const Vec sigmoid = (g < 0.0f ? e : broadcast(1.0f)) / (1.0f + e);
      store(out + row * dim + d, g * sigmoid * load(gate + dim + d));
    }
  });
}

template <typename T>
void rotate(T* x, int64_t stride, int64_t heads, int64_t head_dim, const T* cos_sin,
            int64_t rotary_dim, const int64_t* positions, int64_t rows) {
  const int64_t half = rotary_dim / 2;
  each_row(rows, heads * head_dim, [=](int64_t row) {
    const T* cosines = cos_sin + positions[row] * rotary_dim;
    const T* sines = cosines + half;
    for (T* head = x + row * stride; head < x + row * stride + heads * head_dim; head += head_dim)
      for (int64_t d = 0; d < half; d += kLanes) {
        const Vec a = load(head + d), b = load(head + half + d);
        const Vec c = load(cosines + d), s = load(sines + d);
        store(head + d, a * c - b * s);
        store(head + half + d, b * c + a * s);
      }
  });
}

}  // namespace
}  // namespace jetspec

#pragma GCC visibility push(default)
extern "C" {

// Types: 0 float32, 1 bfloat16, 2 float16. `residual` and `residual_out` are both null or neither.
void jetspec_rms_norm(const void* x, int64_t stride, const void* residual, int64_t residual_stride,
                      const void* weight, void* out, void* residual_out, int64_t rows, int64_t dim,
                      float eps, int type) {
  using namespace jetspec;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    rms_norm(static_cast<const T*>(x), stride, static_cast<const T*>(residual), residual_stride,
             static_cast<const T*>(weight), static_cast<T*>(out), static_cast<T*>(residual_out),
             rows, dim, eps);
  };
  if (type == kFloat) run(float());
  if (type == kBFloat16) run(BFloat16());
  if (type == kHalf) run(Half());
}

void jetspec_silu_and_mul(const void* x, int64_t stride, void* out, int64_t rows, int64_t dim,
                          int type) {
  using namespace jetspec;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    silu_and_mul(static_cast<const T*>(x), stride, static_cast<T*>(out), rows, dim);
  };
  if (type == kFloat) run(float());
  if (type == kBFloat16) run(BFloat16());
  if (type == kHalf) run(Half());
}

// Returns 0, or 1 (nothing written) when a position lies outside the `known` ones of `cos_sin`.
int jetspec_rotate(void* x, int64_t stride, int64_t heads, int64_t head_dim, const void* cos_sin,
                   int64_t known, int64_t rotary_dim, const int64_t* positions, int64_t rows,
                   int type) {
  using namespace jetspec;
  for (int64_t row = 0; row < rows; ++row)
    if (positions[row] < 0 || positions[row] >= known) return 1;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    rotate(static_cast<T*>(x), stride, heads, head_dim, static_cast<const T*>(cos_sin), rotary_dim,
           positions, rows);
  };
  if (type == kFloat) run(float());
  if (type == kBFloat16) run(BFloat16());
  if (type == kHalf) run(Half());
  return 0;
}
}
#pragma GCC visibility pop
