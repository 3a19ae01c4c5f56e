// What an attention call asks for, and how its work is divided among threads.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace jetspec {

constexpr int64_t kTileRows = 48;  // (row, head) pairs that share a pass over K and V

enum Mode { kCausal = 0, kFull = 1, kTree = 2 };
enum Type { kFloat = 0, kBFloat16 = 1, kHalf = 2 };

struct Problem {
  const void* q;
  void* out;
  int64_t q_stride, out_stride;  // elements from one row to the next
  const void *k, *v;
  int64_t k_stride, v_stride;  // elements from one slot to the next
  const int32_t* req_to_token;
  int64_t req_stride;
  const int64_t *req_pool_indices, *prefix_lens, *row_starts, *parents;
  int64_t heads, kv_heads, k_dim, v_dim;
  int mode, io_type;
  float scale, logit_cap;

  int64_t group() const { return heads / kv_heads; }
};

// Rows [first, last) of a request (numbered within it) and one KV head.
struct Tile {
  int64_t request, kv_head, first, last;
  int64_t shared;  // all its rows begin with these first keys of the request
  int64_t chunks;
};

// Whether every request's rows lie inside the tensors and, in a tree, follow their parents.
inline bool well_formed(const Problem& p, int64_t bs, int64_t rows) {
  if (p.row_starts[0] < 0 || p.row_starts[bs] > rows) return false;
  for (int64_t request = 0; request < bs; ++request) {
    const int64_t first = p.row_starts[request], count = p.row_starts[request + 1] - first;
    if (count < 0 || p.prefix_lens[request] < 0) return false;
    if (p.prefix_lens[request] + count > p.req_stride) return false;
    for (int64_t row = 0; p.mode == kTree && row < count; ++row)
      if (p.parents[first + row] < -1 || p.parents[first + row] >= row) return false;
  }
  return true;
}

// What can be computed independently: a tile's chunks [first, last).
struct Task {
  int64_t tile, first, last;
};

struct Plan {
  std::vector<Tile> tiles;
  std::vector<Task> tasks;
  int64_t work = 0;  // multiply-adds

  Plan(const Problem& p, int64_t bs, int64_t threads) {
    const int64_t all_rows = p.row_starts[bs] - p.row_starts[0];
    int64_t tile_rows = std::max<int64_t>(1, kTileRows / p.group());
    // Tiles small enough to give every thread a few, where there are rows enough.
    const auto few = [&] { return all_rows / tile_rows * p.kv_heads < 4 * threads; };
    while (threads > 1 && tile_rows > 4 && few()) tile_rows /= 2;

    for (int64_t request = 0; request < bs; ++request) add_tiles(p, request, tile_rows);
    const bool split = threads > 1 && int64_t(tiles.size()) < 4 * threads;
    for (int64_t tile = 0; tile < int64_t(tiles.size()); ++tile) {
      const int64_t chunks = tiles[tile].chunks, step = split ? 1 : chunks;
      for (int64_t chunk = 0; chunk < chunks; chunk += step)
        tasks.push_back({tile, chunk, chunk + step});
    }
  }

 private:
  void add_tiles(const Problem& p, int64_t request, int64_t tile_rows) {
    const int64_t rows = p.row_starts[request + 1] - p.row_starts[request];
    const int64_t prefix = p.prefix_lens[request];
    if (p.mode == kTree) find_depths(p.parents + p.row_starts[request], rows);
    for (int64_t first = 0; first < rows; first += tile_rows) {
      const int64_t last = std::min(first + tile_rows, rows);
      int64_t shared = prefix + rows, own = 0;
      if (p.mode == kCausal) shared = prefix + first + 1, own = last - first - 1;
      if (p.mode == kTree) {
        shared = prefix + 1;
        own = *std::max_element(depths_.begin() + first, depths_.begin() + last);
      }
      const int64_t chunks = (shared + own + kChunk - 1) / kChunk;
      for (int64_t head = 0; head < p.kv_heads; ++head)
        tiles.push_back({request, head, first, last, shared, chunks});
      work += (last - first) * p.heads * shared * (p.k_dim + p.v_dim);
    }
  }

  void find_depths(const int64_t* parents, int64_t rows) {
    depths_.assign(rows, 0);
    for (int64_t row = 1; row < rows; ++row)
      depths_[row] = parents[row] < 0 ? 1 : depths_[parents[row]] + 1;
  }

  std::vector<int64_t> depths_;
};

}  // namespace jetspec
