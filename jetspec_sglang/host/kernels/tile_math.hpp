// AMX's tiles: their shapes, and the step that linears and attention are made of.
#pragma once

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512F__)
#define JETSPEC_TILES

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "dot.hpp"
#include "panel.hpp"

namespace jetspec {

constexpr int64_t kTileHeight = 16;              // rows of a tile
constexpr int64_t kBlockInputs = 32;             // of a block: 64 bytes, the width of a tile
constexpr int64_t kBlockSteps = kBlockInputs / 2;  // of a block, as a panel holds them
constexpr int64_t kBlock = kBlockSteps * kPanel;   // words of a block of a panel
constexpr int64_t kPanelBytes = kPanel * sizeof(Word);
constexpr int64_t kGroup = 2 * kTileHeight;  // rows that share one reading of a panel

static_assert(kPanel == 2 * kTileHeight, "two tiles hold the outputs of a panel");

// What LDTILECFG reads. Tiles 0 to 3: sums of (low rows, low outputs), (low, high), (high, low),
// (high, high). 4 and 5: inputs of the low and the high rows. 6 and 7: weights.
struct alignas(64) Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit Shapes(int64_t count) {
    const int64_t low = std::min(count, kTileHeight), high = std::max<int64_t>(count - low, 1);
    for (int tile : {0, 1, 4}) set(tile, low);
    for (int tile : {2, 3, 5}) set(tile, high);
    for (int tile : {6, 7}) set(tile, kBlockSteps);
  }

 private:
  void set(int tile, int64_t count) { row_bytes[tile] = 64, rows[tile] = uint8_t(count); }
};

// The intrinsics do not tell the compiler what they read: it must have been written.
inline void written() { asm volatile("" ::: "memory"); }

// Adds the products of a block to the sums; `x`: rows of two bfloat16 a step, `row_bytes` apart.
template <bool kHigh>
void add_block(const void* x, int64_t row_bytes, const Word* panel) {
  _tile_loadd(6, panel, kPanelBytes);
  _tile_loadd(7, panel + kLanes, kPanelBytes);
  _tile_loadd(4, x, row_bytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kHigh) {
    _tile_loadd(5, static_cast<const char*>(x) + kTileHeight * row_bytes, row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

template <bool kHigh>
void clear_sums() {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (kHigh) {
    _tile_zero(2);
    _tile_zero(3);
  }
}

// The sums from or to rows of floats, `stride` apart.
template <bool kHigh>
void load_sums(const float* from, int64_t stride) {
  _tile_loadd(0, from, stride * sizeof *from);
  _tile_loadd(1, from + kTileHeight, stride * sizeof *from);
  if constexpr (kHigh) {
    _tile_loadd(2, from + kTileHeight * stride, stride * sizeof *from);
    _tile_loadd(3, from + kTileHeight * stride + kTileHeight, stride * sizeof *from);
  }
}
template <bool kHigh>
void store_sums(float* to, int64_t stride) {
  _tile_stored(0, to, stride * sizeof *to);
  _tile_stored(1, to + kTileHeight, stride * sizeof *to);
  if constexpr (kHigh) {
    _tile_stored(2, to + kTileHeight * stride, stride * sizeof *to);
    _tile_stored(3, to + kTileHeight * stride + kTileHeight, stride * sizeof *to);
  }
}

}  // namespace jetspec

#endif
