// One machine vector of floats and the few operations attention needs: 16 lanes with AVX-512,
// 8 with AVX2. Every operation is exactly rounded or a fixed sequence of such, so equal inputs
// give equal bits wherever a call is inlined (the library is compiled without contraction).
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "jetspec's host kernels need a CPU with AVX2, FMA and F16C"
#endif

namespace jetspec {

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

using Vec = float __attribute__((vector_size(kLanes * sizeof(float))));
using IntVec = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

inline Vec broadcast(float x) { return x - Vec{}; }

inline Vec load(const float* from) {
  Vec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
inline void store(float* to, Vec v) { std::memcpy(to, &v, sizeof v); }

inline IntVec broadcast_word(uint32_t x) { return int32_t(x) - IntVec{}; }
inline IntVec load_words(const uint32_t* from) {
  IntVec v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

inline void store_words(uint32_t* to, IntVec v) { std::memcpy(to, &v, sizeof v); }

#if defined(__AVX512F__)

inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline __m256i load_16(const void* from) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(from));
}
inline Vec load(const Half* from) { return _mm512_cvtph_ps(load_16(from)); }
inline Vec load(const BFloat16* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_16(from)), 16));
}
inline void store(Half* to, Vec v) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
// v[i][j] and v[j][i] change places: first within blocks of four lanes, then the blocks.
inline void transpose(IntVec (&v)[kLanes]) {
  __m512i pair[16], four[16];
  for (int i = 0; i < 16; i += 2) {
    pair[i] = _mm512_unpacklo_epi32(__m512i(v[i]), __m512i(v[i + 1]));
    pair[i + 1] = _mm512_unpackhi_epi32(__m512i(v[i]), __m512i(v[i + 1]));
  }
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; ++half) {
      four[i + 2 * half] = _mm512_unpacklo_epi64(pair[i + half], pair[i + 2 + half]);
      four[i + 2 * half + 1] = _mm512_unpackhi_epi64(pair[i + half], pair[i + 2 + half]);
    }
  for (int i = 0; i < 4; ++i) {
    const __m512i even_low = _mm512_shuffle_i32x4(four[i], four[i + 4], 0x88);
    const __m512i odd_low = _mm512_shuffle_i32x4(four[i], four[i + 4], 0xdd);
    const __m512i even_high = _mm512_shuffle_i32x4(four[i + 8], four[i + 12], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(four[i + 8], four[i + 12], 0xdd);
    v[i] = IntVec(_mm512_shuffle_i32x4(even_low, even_high, 0x88));
    v[i + 4] = IntVec(_mm512_shuffle_i32x4(odd_low, odd_high, 0x88));
    v[i + 8] = IntVec(_mm512_shuffle_i32x4(even_low, even_high, 0xdd));
    v[i + 12] = IntVec(_mm512_shuffle_i32x4(odd_low, odd_high, 0xdd));
  }
}
// Adds neighbours within each 128-bit lane: {a01, a23, b01, b23} per lane.
inline Vec add_neighbours(Vec a, Vec b) {
  return Vec(_mm512_shuffle_ps(a, b, 0x88)) + Vec(_mm512_shuffle_ps(a, b, 0xdd));
}
// Adds neighbouring 128-bit lanes: {a01, a23, b01, b23}.
inline Vec add_lanes(Vec a, Vec b) {
  return Vec(_mm512_shuffle_f32x4(a, b, 0x88)) + Vec(_mm512_shuffle_f32x4(a, b, 0xdd));
}

#else

inline Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
inline Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
inline __m128i load_16(const void* from) {
  return _mm_loadu_si128(static_cast<const __m128i*>(from));
}
inline Vec load(const Half* from) { return _mm256_cvtph_ps(load_16(from)); }
inline Vec load(const BFloat16* from) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from)), 16));
}
inline void store(Half* to, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
inline Vec add_neighbours(Vec a, Vec b) {
  return Vec(_mm256_shuffle_ps(a, b, 0x88)) + Vec(_mm256_shuffle_ps(a, b, 0xdd));
}
inline Vec add_lanes(Vec a, Vec b) {
  return Vec(_mm256_permute2f128_ps(a, b, 0x20)) + Vec(_mm256_permute2f128_ps(a, b, 0x31));
}

#endif

inline void store(BFloat16* to, Vec v) {  // round to nearest even; NaN stays NaN
  using Bits = uint32_t __attribute__((vector_size(sizeof v)));
  using Rounded = uint16_t __attribute__((vector_size(sizeof v / 2)));
  const Bits bits = Bits(v);
  const Bits even = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const auto nan = (bits & 0x7fffffff) > 0x7f800000;
  const Rounded rounded = __builtin_convertvector(nan ? bits >> 16 | 0x40 : even, Rounded);
  std::memcpy(to, &rounded, sizeof rounded);
}

// Lane i of the result is the sum of all lanes of v[i], each added up by the same tree.
inline Vec sum_each(Vec (&v)[kLanes]) {
  for (int count = kLanes / 2; count >= kLanes / 4; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) v[i] = add_neighbours(v[2 * i], v[2 * i + 1]);
  for (int count = kLanes / 8; count >= 1; count /= 2)
#pragma GCC unroll 2
    for (int i = 0; i < count; ++i) v[i] = add_lanes(v[2 * i], v[2 * i + 1]);
  return v[0];
}

// Lane i and lane i ^ kDistance change places.
template <int kDistance>
Vec swapped(Vec v) {
  IntVec from{};
  for (int i = 0; i < kLanes; ++i) from[i] = i ^ kDistance;
  return __builtin_shuffle(v, from);
}

// All lanes as one: f of halves, then of quarters, and so on.
template <typename F>
float reduced(Vec v, F f) {
  if constexpr (kLanes > 8) v = f(v, swapped<8>(v));
  v = f(v, swapped<4>(v));
  v = f(v, swapped<2>(v));
  return f(v, swapped<1>(v))[0];
}
inline float sum(Vec v) {
  return reduced(v, [](Vec a, Vec b) { return a + b; });
}
inline float largest(Vec v) {
  return reduced(v, [](Vec a, Vec b) { return max(a, b); });
}

// e^x for x <= 0 within 2 ulp (range reduction and polynomial after Cephes expf); exactly 1 at
// 0, and 0 below -87, -inf included.
inline Vec exp_negative(Vec x) {
  const Vec magic = broadcast(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const Vec shifted = fma(x, broadcast(1.44269504088896341f), magic);
  const Vec n = shifted - magic;
  Vec r = fma(n, broadcast(-0.693359375f), x);
  r = fma(n, broadcast(2.12194440e-4f), r);
  Vec p = broadcast(1.9875691500e-4f);
  p = fma(p, r, broadcast(1.3981999507e-3f));
  p = fma(p, r, broadcast(8.3334519073e-3f));
  p = fma(p, r, broadcast(4.1665795894e-2f));
  p = fma(p, r, broadcast(1.6666665459e-1f));
  p = fma(p, r, broadcast(5.0000001201e-1f));
  const Vec y = fma(p, r * r, r) + 1.0f;
  const Vec power = Vec((IntVec(shifted) - IntVec(magic) + 127) << 23);
  return x < broadcast(-87.0f) ? Vec{} : y * power;
}

inline Vec tanh(Vec x) {
  const Vec size = x < 0.0f ? -x : x;
  const Vec e = exp_negative(-2.0f * size);
  const Vec t = (1.0f - e) / (1.0f + e);
  return x < 0.0f ? -t : t;
}

}  // namespace jetspec
