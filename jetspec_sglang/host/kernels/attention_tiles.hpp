// The products of attention in bfloat16 on AMX.
//
// Keys and values of a chunk are packed into panels, as the weights of a linear are (see panel.hpp): a
// step of the scores is two dimensions of a key, a step of the values two keys. Weights are rounded to
// bfloat16. A block of 32 keys begins at a multiple of 32 in the row's list of keys, and what it lacks
// at the end of the list counts as zeros: so its bits depend on the list alone.
#pragma once

#include "tile_math.hpp"

#ifdef JETSPEC_TILES

#include <algorithm>
#include <type_traits>

#include "aligned.hpp"
#include "kernels.hpp"
#include "plan.hpp"

namespace jetspec {

class TileMath {
 public:
  using Query = BFloat16;
  static constexpr int64_t kRowStep = kTileHeight, kValueStep = kPanel, kKeyStep = kBlockInputs;

  TileMath(const Problem& problem, int64_t kv_head, int64_t rows)
      : p_(problem),
        keys_(static_cast<const BFloat16*>(problem.k) + kv_head * problem.k_dim),
        values_(static_cast<const BFloat16*>(problem.v) + kv_head * problem.v_dim),
        lower_(std::min(rows, kTileHeight)),
        memory_(Memory::mine()) {
    const Shapes shapes(std::min(rows, kGroup));
    written();
    _tile_loadconfig(&shapes);
  }
  TileMath(const TileMath&) = delete;
  ~TileMath() { _tile_release(); }  // else the system saves 8 KiB of tiles at every switch of threads

  static int64_t query_dim(int64_t k_dim) { return blocks_of(k_dim) * kBlockInputs; }

  // scores[r][i] = queries[r] . K[slots[i]]. Rows up to the next multiple of kRowStep and kPanel keys
  // from `count` on may be overwritten.
  void score(const BFloat16* queries, int64_t rows, const int32_t* slots, int64_t count,
             float* scores) {
    const int64_t dim = query_dim(p_.k_dim), blocks = blocks_of(p_.k_dim), panel = blocks * kBlock;
    pack_keys(slots, count);
    in_groups(rows, [&](auto high, int64_t x) {
      for (int64_t at = 0; at < count; at += kPanel) {
        clear_sums<high()>();
        for (int64_t block = 0; block < blocks; ++block)
          add_block<high()>(queries + x * dim + block * kBlockInputs, dim * sizeof *queries,
                            memory_.keys.data() + at / kPanel * panel + block * kBlock);
        store_sums<high()>(scores + x * kScoreStride + at, kScoreStride);
      }
    });
  }

  // What `mix` reads of a row, in the place of its scores.
  static void store_weights(float* scores, int64_t key, Vec weights) {
    store(reinterpret_cast<BFloat16*>(scores) + key, weights);
  }

  // acc[r] += weights[r][first + i] * V[slots[i]], over i in order. `first` begins a block, and weights
  // of whole blocks are read.
  void mix(const float* scores, int64_t first, int64_t rows, const int32_t* slots, int64_t count,
           float* acc) {
    const int64_t dim = panels_of(p_.v_dim) * kPanel, blocks = steps_of(count, kBlockInputs);
    const auto* const weights = reinterpret_cast<const BFloat16*>(scores) + first;
    pack_values(slots, count);
    in_groups(rows, [&](auto high, int64_t x) {
      const int64_t left = rows - x;
      for (int64_t at = 0; at < dim; at += kPanel) {
        float* const sums = acc + x * dim + at;
        load_sums<high()>(sums, dim);
        for (int64_t block = 0; block < blocks; ++block)
          add_block<high()>(weights + 2 * x * kScoreStride + block * kBlockInputs,
                            kScoreStride * sizeof *scores,
                            memory_.values.data() + at * blocks * kBlockSteps + block * kBlock);
        if (left >= (high() ? kGroup : lower_)) {
          store_sums<high()>(sums, dim);
          continue;
        }
        // The rows behind the last one are another's.
        alignas(64) float some[kGroup * kPanel];
        store_sums<high()>(some, kPanel);
        for (int64_t row = 0; row < left; ++row)
          std::copy(some + row * kPanel, some + (row + 1) * kPanel, sums + row * dim);
      }
    });
  }

 private:
  struct Memory {
    Aligned<Word> keys, values;

    static Memory& mine() {
      static thread_local Memory memory;
      return memory;
    }
  };

  static int64_t blocks_of(int64_t dim) { return steps_of(dim, kBlockInputs); }

  // Calls f(whether there are rows above the lower tile, x) over groups of rows.
  template <typename F>
  static void in_groups(int64_t rows, F&& f) {
    written();
    for (int64_t x = 0; x < rows; x += kGroup)
      if (rows - x > kTileHeight)
        f(std::true_type(), x);
      else
        f(std::false_type(), x);
  }

  // Panels of keys, each [words of two dimensions][kPanel].
  void pack_keys(const int32_t* slots, int64_t count) {
    const int64_t words = p_.k_dim / 2, blocks = blocks_of(p_.k_dim), panel = blocks * kBlock;
    memory_.keys.resize(panels_of(count) * panel);
    for (int64_t at = 0; at < count; at += kLanes) {
      Word* to = memory_.keys.data() + at / kPanel * panel + at % kPanel;
      const BFloat16* key[kLanes];
      for (int64_t i = 0; i < kLanes; ++i)
        key[i] = keys_ + p_.k_stride * slots[std::min(at + i, count - 1)];
      for (int64_t first = 0; first < words; first += kLanes) {
        const __mmask16 some = words - first < kLanes ? (1u << (words - first)) - 1 : 0xffff;
        IntVec row[kLanes];
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i)
          row[i] = IntVec(_mm512_maskz_loadu_epi32(some, key[i] + 2 * first));
        transpose(row);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kLanes; ++i, to += kPanel) store_words(to, row[i]);
      }
    }
  }

  // Panels of dimensions, each [pairs of keys up to a whole block][kPanel].
  void pack_values(const int32_t* slots, int64_t count) {
    const int64_t steps = steps_of(count, kBlockInputs) * kBlockSteps, panel = steps * kPanel;
    memory_.values.resize(panels_of(p_.v_dim) * panel);
    for (int64_t d = 0; d < p_.v_dim; d += kPanel) {
      const __mmask32 some = p_.v_dim - d < kPanel ? (1u << (p_.v_dim - d)) - 1 : ~0u;
      const auto halves = [&](int64_t i) {
        const BFloat16* const value = values_ + p_.v_stride * slots[i] + d;
        return _mm512_permutexvar_epi64(_mm512_set_epi64(7, 3, 6, 2, 5, 1, 4, 0),
                                        _mm512_maskz_loadu_epi16(some, value));
      };
      Word* to = memory_.values.data() + d * steps;
      for (int64_t i = 0; i < 2 * steps; i += 2, to += kPanel) {
        const __m512i even = i < count ? halves(i) : __m512i{};
        const __m512i odd = i + 1 < count ? halves(i + 1) : __m512i{};
        store_words(to, IntVec(_mm512_unpacklo_epi16(even, odd)));
        store_words(to + kLanes, IntVec(_mm512_unpackhi_epi16(even, odd)));
      }
    }
  }

  const Problem& p_;
  const BFloat16 *keys_, *values_;
  const int64_t lower_;  // rows of the lower tile
  Memory& memory_;
};

}  // namespace jetspec

#endif
