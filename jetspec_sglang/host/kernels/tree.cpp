// Draft trees and the walk through them on the host. The Python modules tree/reference.py and
// verify/reference.py define the results; these equal them bit for bit.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

namespace {

// A node's place in best-first order as one number, smallest first:
// -score (float bits, 32) | depth (8) | parent's visit (16) | sibling (8).
// Scores are never above 0, so the bits of -score order as unsigned integers.
using Key = uint64_t;

Key pack(float score, int64_t depth, int64_t parent, int64_t sibling) {
  const float cost = 0.0f - score;
  uint32_t bits;
  std::memcpy(&bits, &cost, sizeof bits);
  return Key(bits) << 32 | Key(depth) << 24 | Key(parent) << 8 | Key(sibling);
}

struct Visit {
  explicit Visit(Key key)
      : depth(key >> 24 & 0xff), parent(key >> 8 & 0xffff), sibling(key & 0xff) {
    const uint32_t bits = key >> 32;
    float cost;
    std::memcpy(&cost, &bits, sizeof cost);
    score = 0.0f - cost;
  }
  float score;
  int64_t depth, parent, sibling;
};

struct Lattice {
  const int64_t* tokens;  // [depths, width]
  const float* logprobs;
  int64_t depths, width, used_width;

  // Score of a child at `depth` (from 1), -inf where there is no such candidate.
  float child(float score, int64_t depth, int64_t sibling) const {
    if (depth > depths || sibling >= used_width) return -std::numeric_limits<float>::infinity();
    return score + std::min(logprobs[(depth - 1) * width + sibling], 0.0f);
  }
  int64_t token(int64_t depth, int64_t sibling) const {
    return depth ? tokens[(depth - 1) * width + sibling] : 0;
  }
};

bool exists(float score) { return score > -std::numeric_limits<float>::infinity(); }

void sift_down(std::vector<Key>& heap) {
  const size_t size = heap.size();
  const Key key = heap[0];
  size_t at = 0;
  for (size_t child = 1; child < size; child = 2 * at + 1) {
    child += child + 1 < size && heap[child + 1] < heap[child];
    if (heap[child] >= key) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = key;
}

// The best `limit` nodes, best first.
void visit_best_first(const Lattice& lattice, int64_t limit, std::vector<Key>& heap,
                      std::vector<Key>& order, std::vector<float>& parent_scores) {
  order.clear();
  parent_scores.clear();
  heap.assign(1, pack(0.0f, 0, 0, 0));
  while (!heap.empty() && int64_t(order.size()) < limit) {
    const Key key = heap[0];
    const Visit node(key);
    order.push_back(key);
    parent_scores.push_back(node.score);

    const float sibling = node.depth ? lattice.child(parent_scores[node.parent], node.depth,
                                                     node.sibling + 1)
                                     : -std::numeric_limits<float>::infinity();
    if (exists(sibling)) {
      heap[0] = pack(sibling, node.depth, node.parent, node.sibling + 1);
    } else {
      heap[0] = heap.back();
      heap.pop_back();
    }
    if (!heap.empty()) sift_down(heap);

    const float child = lattice.child(node.score, node.depth + 1, 0);
    if (exists(child)) {
      heap.push_back(pack(child, node.depth + 1, int64_t(order.size()) - 1, 0));
      std::push_heap(heap.begin(), heap.end(), std::greater<Key>());
    }
  }
}

struct Rows {  // one request's output
  int64_t *tokens, *parents, *depths;
  float* scores;
  int64_t budget;
  int64_t size = 0;

  void add(int64_t token, int64_t parent, int64_t depth, float score) {
    tokens[size] = token;
    parents[size] = parent;
    depths[size] = depth;
    scores[size] = score;
    ++size;
  }
  void pad() {
    std::fill(tokens + size, tokens + budget, 0);
    std::fill(parents + size, parents + budget, -1);
    std::fill(depths + size, depths + budget, 0);
    std::fill(scores + size, scores + budget, -std::numeric_limits<float>::infinity());
  }
};

void emit_visits(const Lattice& lattice, const std::vector<Key>& order, Rows& out) {
  for (const Key key : order) {
    const Visit node(key);
    out.add(lattice.token(node.depth, node.sibling), node.depth ? node.parent : -1, node.depth,
            node.score);
  }
}

// Every visited node adds all its children; its own rank is found through the first child that
// its parent added.
void emit_all_children(const Lattice& lattice, const std::vector<Key>& order, Rows& out) {
  std::vector<int64_t> first_child(order.size());
  out.add(0, -1, 0, 0.0f);
  for (size_t visit = 0; visit < order.size() && out.size < out.budget; ++visit) {
    const Visit node(order[visit]);
    const int64_t rank = node.depth ? first_child[node.parent] + node.sibling : 0;
    first_child[visit] = out.size;
    for (int64_t sibling = 0; sibling < lattice.width && out.size < out.budget; ++sibling) {
      const float score = lattice.child(node.score, node.depth + 1, sibling);
      if (!exists(score)) break;
      out.add(lattice.token(node.depth + 1, sibling), rank, node.depth + 1, score);
    }
  }
}

bool usable(const float* logprobs, int64_t rows, int64_t width) {
  int bad = 0;
  for (int64_t row = 0; row < rows; ++row, logprobs += width) {
    float above = std::numeric_limits<float>::max();
    for (int64_t i = 0; i < width; ++i) {
      bad |= !(logprobs[i] <= above);
      above = logprobs[i];
    }
  }
  return !bad;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

// Returns 0, or 1 (nothing written) when a log-probability is NaN, +inf or does not descend.
// rule: 0 best_first, 1 accum_logp, 2 chain. Limits: depths, width <= 255, budget <= 65536.
int jetspec_build_tree(const int64_t* tokens, const float* logprobs, int64_t bs, int64_t depths,
                       int64_t width, int64_t budget, int rule, int64_t* out_tokens,
                       int64_t* out_parents, int64_t* out_depths, float* out_scores,
                       int64_t* out_sizes) {
  if (!usable(logprobs, bs * depths, width)) return 1;
  // One thread: a batch takes microseconds, less than waking a pool costs on a busy host.
  std::vector<Key> heap, order;
  std::vector<float> scores;
  heap.reserve(budget + 1);
  order.reserve(budget);
  scores.reserve(budget);
  const int64_t used_width = rule == 2 ? std::min<int64_t>(width, 1) : width;
  for (int64_t i = 0; i < bs; ++i) {
    const int64_t from = i * depths * width, to = i * budget;
    const Lattice lattice{tokens + from, logprobs + from, depths, width, used_width};
    Rows out{out_tokens + to, out_parents + to, out_depths + to, out_scores + to, budget};
    visit_best_first(lattice, budget, heap, order, scores);
    if (rule == 1)
      emit_all_children(lattice, order, out);
    else
      emit_visits(lattice, order, out);
    out_sizes[i] = out.size;
    out.pad();
  }
  return 0;
}

// Children follow their parent in rank order, so one pass finds the whole path.
// path and committed are [bs, depths + 1].
void jetspec_accept(const int64_t* tokens, const int64_t* parents, const int64_t* sizes,
                    const int64_t* targets, int64_t bs, int64_t budget, int64_t depths,
                    int64_t* path, int32_t* lens, int64_t* committed, int64_t* bonus) {
  const int64_t stride = depths + 1;
  for (int64_t i = 0; i < bs; ++i) {
    const int64_t base = i * budget;
    int64_t* const row = path + i * stride;
    int64_t* const out = committed + i * stride;
    int64_t at = 0, length = 0;
    row[length] = at;
    out[length++] = targets[base];
    for (int64_t node = 1; node < sizes[i] && length < stride; ++node) {
      if (parents[base + node] != at || tokens[base + node] != targets[base + at]) continue;
      at = node;
      row[length] = at;
      out[length++] = targets[base + at];
    }
    std::fill(row + length, row + stride, -1);
    std::fill(out + length, out + stride, 0);
    lens[i] = int32_t(length);
    bonus[i] = targets[base + at];
  }
}

void jetspec_child_links(const int64_t* parents, const int64_t* sizes, int64_t bs, int64_t budget,
                         int64_t* next_token, int64_t* next_sibling) {
  std::fill(next_token, next_token + bs * budget, -1);
  std::fill(next_sibling, next_sibling + bs * budget, -1);
  for (int64_t i = 0; i < bs; ++i) {
    const int64_t base = i * budget;
    for (int64_t node = sizes[i] - 1; node > 0; --node) {
      int64_t& first = next_token[base + parents[base + node]];
      next_sibling[base + node] = first;
      first = node;
    }
  }
}
}
#pragma GCC visibility pop
