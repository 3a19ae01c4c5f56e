#include "tiles.hpp"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512F__)

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "panel.hpp"
#include "pool.hpp"

namespace jetspec {
namespace {

constexpr int64_t kRows = 16;             // of a tile
constexpr int64_t kInputs = 32;           // of a block: 64 bytes, a row of a tile
constexpr int64_t kSteps = kInputs / 2;   // of a block, as the weight is packed
constexpr int64_t kGroup = 2 * kRows;     // rows that share one reading of a panel
constexpr int64_t kBlock = kSteps * kPanel;  // words of a block of a panel
constexpr int64_t kShare = 4;  // panels of a task with several groups
constexpr int64_t kAhead = 6 * kBlock;  // words between what is multiplied and what is fetched
constexpr int64_t kPanelBytes = kPanel * sizeof(Word);

static_assert(kPanel == 2 * kRows, "two tiles hold the outputs of a panel");

// What LDTILECFG reads. Tiles 0 to 3: sums of (low rows, low outputs), (low, high), (high, low),
// (high, high). 4 and 5: inputs of the low and the high rows. 6 and 7: weights.
struct alignas(64) Shapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  explicit Shapes(int64_t count) {
    const int64_t low = std::min(count, kRows), high = std::max<int64_t>(count - low, 1);
    for (int tile : {0, 1, 4}) set(tile, low);
    for (int tile : {2, 3, 5}) set(tile, high);
    for (int tile : {6, 7}) set(tile, kSteps);
  }

 private:
  void set(int tile, int64_t count) { row_bytes[tile] = 64, rows[tile] = uint8_t(count); }
};

// The intrinsics do not tell the compiler what they read: it must have been written.
inline void written() { asm volatile("" ::: "memory"); }

template <bool kHigh>
void add_block(const BFloat16* x, int64_t row_bytes, const Word* panel) {
  _tile_loadd(6, panel, kPanelBytes);
  _tile_loadd(7, panel + kLanes, kPanelBytes);
  _tile_loadd(4, x, row_bytes);
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  if constexpr (kHigh) {
    _tile_loadd(5, reinterpret_cast<const char*>(x) + kRows * row_bytes, row_bytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// What is left of the rows behind their whole blocks, filled up with zeros.
struct Tail {
  std::vector<BFloat16> x;  // [rows, kInputs]

  explicit Tail(const TileProduct& p) {
    const int64_t whole = p.depth / kInputs * kInputs;
    if (whole == p.depth) return;
    x.resize(p.rows * kInputs);
    for (int64_t row = 0; row < p.rows; ++row)
      std::copy(p.x + row * p.stride + whole, p.x + row * p.stride + p.depth, &x[row * kInputs]);
  }
};

// The sums of a panel for `count` rows, in tiles 0 to 3.
template <bool kHigh>
void add_panel(const TileProduct& p, const Tail& tail, int64_t first, const Word* panel,
               bool fetch) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const BFloat16* x = p.x + first * p.stride;
  for (int64_t block = 0; block < p.depth / kInputs; ++block, x += kInputs, panel += kBlock) {
    for (int64_t at = 0; fetch && at < kBlock; at += kLine)
      _mm_prefetch(reinterpret_cast<const char*>(panel + kAhead + at), _MM_HINT_T0);
    add_block<kHigh>(x, p.stride * sizeof *x, panel);
  }
  if (tail.x.empty()) return;
  Word last[kBlock] = {};
  std::copy(panel, panel + steps_of(p.depth % kInputs, 2) * kPanel, last);
  written();
  add_block<kHigh>(&tail.x[first * kInputs], kInputs * sizeof *x, last);
}

// The outputs of one panel for the rows of a group.
void multiply(const TileProduct& p, const Tail& tail, int64_t number, int64_t first, int64_t count) {
  const int64_t at = number * kPanel, width = std::min(kPanel, p.outputs - at);
  const Word* const panel = p.packed + at * steps_of(p.depth, 2);
  const bool high = count > kRows;
  (high ? add_panel<true> : add_panel<false>)(p, tail, first, panel, first == 0);
  alignas(64) float sums[kGroup * kPanel];
  _tile_stored(0, sums, kPanelBytes);
  _tile_stored(1, sums + kLanes, kPanelBytes);
  if (high) {
    _tile_stored(2, sums + kRows * kPanel, kPanelBytes);
    _tile_stored(3, sums + kRows * kPanel + kLanes, kPanelBytes);
  }
  for (int64_t row = 0; row < count; ++row)
    finish(sums + row * kPanel, p.bias ? p.bias + at : nullptr,
           p.out + (first + row) * p.outputs + at, width);
}

// Panels [from, to), group by group: a group's inputs stay in the nearest cache for all of them.
void multiply_panels(const TileProduct& p, const Tail& tail, int64_t from, int64_t to) {
  int64_t shaped = 0;
  for (int64_t first = 0; first < p.rows; first += kGroup) {
    const int64_t count = std::min(kGroup, p.rows - first);
    if (count != shaped) {
      const Shapes shapes(count);
      written();
      _tile_loadconfig(&shapes);
      shaped = count;
    }
    for (int64_t panel = from; panel < to; ++panel) multiply(p, tail, panel, first, count);
  }
  _tile_release();  // else the system saves 8 KiB of tiles whenever it switches threads
}

}  // namespace

bool tiles_allowed() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

void multiply_tiles(const TileProduct& p) {
  const Tail tail(p);
  const bool worth_threads = p.rows * p.depth * p.outputs >= kWorthThreads;
  const int64_t panels = panels_of(p.outputs), share = p.rows > kGroup ? kShare : 1;
  Pool::run((panels + share - 1) / share, worth_threads, [&](int64_t task) {
    multiply_panels(p, tail, task * share, std::min((task + 1) * share, panels));
  });
}

}  // namespace jetspec

#else

namespace jetspec {

bool tiles_allowed() { return false; }
void multiply_tiles(const TileProduct&) {}

}  // namespace jetspec

#endif
