#include "tiles.hpp"

#include "tile_math.hpp"

#ifdef JETSPEC_TILES
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "pool.hpp"

namespace jetspec {
namespace {

constexpr int64_t kShare = 4;           // panels of a task with several groups
constexpr int64_t kAhead = 6 * kBlock;  // words between what is multiplied and what is fetched

// What is left of the rows behind their whole blocks, filled up with zeros.
struct Tail {
  std::vector<BFloat16> x;  // [rows, kBlockInputs]

  explicit Tail(const TileProduct& p) {
    const int64_t whole = p.depth / kBlockInputs * kBlockInputs;
    if (whole == p.depth) return;
    x.resize(p.rows * kBlockInputs);
    for (int64_t row = 0; row < p.rows; ++row)
      std::copy(p.x + row * p.stride + whole, p.x + row * p.stride + p.depth, &x[row * kBlockInputs]);
  }
};

// The sums of a panel for the rows from `first` on, in tiles 0 to 3.
template <bool kHigh>
void add_panel(const TileProduct& p, const Tail& tail, int64_t first, const Word* panel,
               bool fetch) {
  clear_sums<kHigh>();
  const BFloat16* x = p.x + first * p.stride;
  for (int64_t block = 0; block < p.depth / kBlockInputs; ++block, x += kBlockInputs, panel += kBlock) {
    for (int64_t at = 0; fetch && at < kBlock; at += kLine)
      _mm_prefetch(reinterpret_cast<const char*>(panel + kAhead + at), _MM_HINT_T0);
    add_block<kHigh>(x, p.stride * sizeof *x, panel);
  }
  if (tail.x.empty()) return;
  Word last[kBlock] = {};
  std::copy(panel, panel + steps_of(p.depth % kBlockInputs, 2) * kPanel, last);
  written();
  add_block<kHigh>(&tail.x[first * kBlockInputs], kBlockInputs * sizeof *x, last);
}

// The outputs of one panel for the rows of a group.
void multiply(const TileProduct& p, const Tail& tail, int64_t number, int64_t first, int64_t count) {
  const int64_t at = number * kPanel, width = std::min(kPanel, p.outputs - at);
  const Word* const panel = p.packed + at * steps_of(p.depth, 2);
  const bool high = count > kTileHeight;
  (high ? add_panel<true> : add_panel<false>)(p, tail, first, panel, first == 0);
  alignas(64) float sums[kGroup * kPanel];
  (high ? store_sums<true> : store_sums<false>)(sums, kPanel);
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
