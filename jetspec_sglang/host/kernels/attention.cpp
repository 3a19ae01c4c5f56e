// Attention of the host platform: reads K/V in place through slot ids, any mask of the engine.
//
// A row's keys form a list: the request's cached prefix in order, then the request's own new rows
// that it sees, in order (in a tree: from the root down to itself). The arithmetic of a row
// depends on that list alone. Keys are taken in chunks of kChunk by their place in the list; a
// chunk's softmax is computed by itself and folded into the row's running state, first chunk
// first. Hence a row has the same bits alone, in a tree, in a prefill chunk, at any batch and
// with any number of threads.
#include <algorithm>
#include <vector>

#include "calls.hpp"
#include "kernels.hpp"
#include "plan.hpp"
#include "pool.hpp"

namespace jetspec {
namespace {

constexpr int64_t kWorthThreads = 200000;  // multiply-adds from which threads pay off

// Memory of one thread, kept from call to call.
struct Scratch {
  std::vector<float> queries, scores, running, fresh;
  std::vector<int32_t> own_slots;
  std::vector<size_t> own_ends;

  static Scratch& mine() {
    static thread_local Scratch scratch;
    return scratch;
  }
};

// One thread's work on tiles; T is the pool's element type.
template <typename T>
class TileRunner {
 public:
  TileRunner(const Problem& problem, Scratch& scratch) : p_(problem), scratch_(scratch) {}

  // The tile's state over its chunk-th chunk alone.
  void attend(const Tile& tile, int64_t chunk, State state) {
    const int64_t group = p_.group(), rows = (tile.last - tile.first) * group;
    const int32_t* slots = slots_of(tile);
    const T* keys = static_cast<const T*>(p_.k) + tile.kv_head * p_.k_dim;
    const T* values = static_cast<const T*>(p_.v) + tile.kv_head * p_.v_dim;
    const int64_t from = chunk * kChunk, to = from + kChunk;
    const int64_t shared = std::clamp<int64_t>(tile.shared - from, 0, kChunk);
    scratch_.scores.resize(rows * kScoreStride);
    state.clear(rows, p_.v_dim);

    in_fours(rows, [&](auto four, int64_t x) {
      dot<four()>(&scratch_.queries[x * p_.k_dim], p_.k_dim, keys, p_.k_stride, slots + from, shared,
                  &scratch_.scores[x * kScoreStride]);
    });
    for (int64_t row = tile.first; row < tile.last; ++row) {
      const int64_t x0 = (row - tile.first) * group;
      const Own own = own_keys(tile, row, from, to);
      in_fours(group, [&](auto four, int64_t x) {
        dot<four()>(&scratch_.queries[(x0 + x) * p_.k_dim], p_.k_dim, keys, p_.k_stride, own.slots, own.count,
                    &scratch_.scores[(x0 + x) * kScoreStride + shared]);
      });
      for (int64_t x = x0; x < x0 + group; ++x)
        soften(&scratch_.scores[x * kScoreStride], shared + own.count, state.top[x], state.total[x]);
    }
    in_fours(rows, [&](auto four, int64_t x) {
      mix<four()>(&scratch_.scores[x * kScoreStride], values, p_.v_stride, slots + from, shared,
                  state.acc + x * p_.v_dim, p_.v_dim);
    });
    for (int64_t row = tile.first; row < tile.last; ++row) {
      const int64_t x0 = (row - tile.first) * group;
      const Own own = own_keys(tile, row, from, to);
      in_fours(group, [&](auto four, int64_t x) {
        mix<four()>(&scratch_.scores[(x0 + x) * kScoreStride + shared], values, p_.v_stride, own.slots,
                    own.count, state.acc + (x0 + x) * p_.v_dim, p_.v_dim);
      });
    }
  }

  // Reads the tile's queries, scaled, and its rows' own keys. Before `attend`.
  void open(const Tile& tile) {
    const int64_t group = p_.group(), size = group * p_.k_dim;
    scratch_.queries.resize((tile.last - tile.first) * size);
    scratch_.own_slots.clear();
    scratch_.own_ends.clear();
    for (int64_t row = tile.first; row < tile.last; ++row) {
      const int64_t at = (p_.row_starts[tile.request] + row) * p_.q_stride + tile.kv_head * size;
      float* to = &scratch_.queries[(row - tile.first) * size];
      with_io([&](auto type) {
        const auto* from = static_cast<const decltype(type)*>(p_.q) + at;
        for (int64_t d = 0; d < size; d += kLanes) store(to + d, load(from + d) * p_.scale);
      });
      if (p_.mode == kTree) list_ancestors(tile, row);
    }
  }

  void close(const Tile& tile, const State& state) {
    const int64_t group = p_.group(), dim = p_.v_dim;
    for (int64_t row = tile.first; row < tile.last; ++row)
      for (int64_t head = 0; head < group; ++head) {
        const int64_t x = (row - tile.first) * group + head;
        const int64_t at = (p_.row_starts[tile.request] + row) * p_.out_stride +
                           (tile.kv_head * group + head) * dim;
        with_io([&](auto type) {
          auto* to = static_cast<decltype(type)*>(p_.out) + at;
          for (int64_t d = 0; d < dim; d += kLanes)
            store(to + d, load(state.acc + x * dim + d) / broadcast(state.total[x]));
        });
      }
  }

  State state(std::vector<float>& memory, const Tile& tile) {
    const int64_t rows = (tile.last - tile.first) * p_.group();
    memory.resize(State::floats(rows, p_.v_dim));
    return State(memory.data(), rows);
  }

 private:
  struct Own {
    const int32_t* slots;
    int64_t count;
  };

  const int32_t* slots_of(const Tile& tile) const {
    return p_.req_to_token + p_.req_pool_indices[tile.request] * p_.req_stride;
  }

  template <typename F>
  void with_io(F&& f) const {
    if (p_.io_type == kFloat) f(float());
    if (p_.io_type == kBFloat16) f(BFloat16());
    if (p_.io_type == kHalf) f(Half());
  }

  // Slots of the rows from below the root down to `row`, appended to scratch_.own_slots.
  void list_ancestors(const Tile& tile, int64_t row) {
    const int32_t* slots = slots_of(tile) + p_.prefix_lens[tile.request];
    const int64_t* parents = p_.parents + p_.row_starts[tile.request];
    const size_t begin = scratch_.own_slots.size();
    for (int64_t node = row; node > 0; node = parents[node]) scratch_.own_slots.push_back(slots[node]);
    std::reverse(scratch_.own_slots.begin() + begin, scratch_.own_slots.end());
    scratch_.own_ends.push_back(scratch_.own_slots.size());
  }

  // The keys of `row` after the tile's shared ones, as far as they lie in places [from, to).
  Own own_keys(const Tile& tile, int64_t row, int64_t from, int64_t to) const {
    const int32_t* slots;
    int64_t count;
    if (p_.mode == kTree) {
      const size_t i = row - tile.first, begin = i ? scratch_.own_ends[i - 1] : 0;
      slots = scratch_.own_slots.data() + begin;
      count = scratch_.own_ends[i] - begin;
    } else {
      slots = slots_of(tile) + tile.shared;
      count = p_.mode == kCausal ? row - tile.first : 0;
    }
    const int64_t skip = std::clamp<int64_t>(from - tile.shared, 0, count);
    const int64_t stop = std::clamp<int64_t>(to - tile.shared, skip, count);
    return {slots + skip, stop - skip};
  }

  // Scores to weights relative to the largest.
  void soften(float* scores, int64_t count, float& top, float& total) const {
    if (count == 0) return;
    const int64_t end = (count + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = 0; p_.logit_cap > 0 && i < end; i += kLanes)
      store(scores + i, tanh(load(scores + i) / broadcast(p_.logit_cap)) * p_.logit_cap);
    std::fill(scores + count, scores + end, -kInf);
    Vec above = broadcast(-kInf);
    for (int64_t i = 0; i < end; i += kLanes) above = max(above, load(scores + i));
    top = largest(above);
    Vec weights{};
    for (int64_t i = 0; i < end; i += kLanes) {
      const Vec weight = exp_negative(load(scores + i) - top);
      store(scores + i, weight);
      weights = weights + weight;
    }
    total = sum(weights);
  }

  const Problem& p_;
  Scratch& scratch_;
};

template <typename T>
void run(const Problem& problem, int64_t bs) {
  const Plan plan(problem, bs, Pool::threads());
  // Where tiles are split, every task leaves its state here for the tile's fold.
  const bool split = plan.tasks.size() > plan.tiles.size();
  std::vector<std::vector<float>> partial(split ? plan.tasks.size() : 0);
  const bool worth_threads = plan.work >= kWorthThreads;
  const auto rows_of = [&](const Tile& tile) { return (tile.last - tile.first) * problem.group(); };
  Pool::run(plan.tasks.size(), worth_threads, [&](int64_t i) {
    Scratch& scratch = Scratch::mine();
    TileRunner<T> runner(problem, scratch);
    const Task& task = plan.tasks[i];
    const Tile& tile = plan.tiles[task.tile];
    runner.open(tile);
    if (split) return runner.attend(tile, task.first, runner.state(partial[i], tile));
    State running = runner.state(scratch.running, tile);
    const State fresh = runner.state(scratch.fresh, tile);
    running.clear(rows_of(tile), problem.v_dim);
    for (int64_t chunk = task.first; chunk < task.last; ++chunk) {
      runner.attend(tile, chunk, fresh);
      running.fold(fresh, rows_of(tile), problem.v_dim);
    }
    runner.close(tile, running);
  });
  if (!split) return;
  Pool::run(plan.tasks.size(), worth_threads, [&](int64_t i) {
    if (plan.tasks[i].first != 0) return;
    Scratch& scratch = Scratch::mine();
    TileRunner<T> runner(problem, scratch);
    const Tile& tile = plan.tiles[plan.tasks[i].tile];
    State running = runner.state(scratch.running, tile);
    running.clear(rows_of(tile), problem.v_dim);
    for (int64_t chunk = 0; chunk < tile.chunks; ++chunk)
      running.fold(runner.state(partial[i + chunk], tile), rows_of(tile), problem.v_dim);
    runner.close(tile, running);
  });
}

}  // namespace
}  // namespace jetspec

#pragma GCC visibility push(default)
extern "C" {

// Returns 0, or 1 (nothing written) when the requests' rows do not fit the tensors given.
// Types: 0 float32, 1 bfloat16, 2 float16. Modes: 0 causal, 1 full, 2 tree.
int jetspec_attention(const void* q, int64_t q_stride, void* out, int64_t out_stride, int io_type,
                      const void* k, int64_t k_stride, const void* v, int64_t v_stride,
                      int pool_type, const int32_t* req_to_token, int64_t req_stride,
                      const int64_t* req_pool_indices, const int64_t* prefix_lens,
                      const int64_t* row_starts, const int64_t* parents, int64_t bs, int64_t rows,
                      int64_t heads, int64_t kv_heads, int64_t k_dim, int64_t v_dim, int mode,
                      float scale, float logit_cap) {
  using namespace jetspec;
  const Problem problem{q,        out,       q_stride,   out_stride, k,        v,
                        k_stride, v_stride,  req_to_token, req_stride, req_pool_indices,
                        prefix_lens, row_starts, parents, heads,    kv_heads, k_dim,
                        v_dim,    mode,      io_type,    scale,      logit_cap};
  if (!well_formed(problem, bs, rows)) return 1;
  if (pool_type == kFloat) run<float>(problem, bs);
  if (pool_type == kBFloat16) run<BFloat16>(problem, bs);
  if (pool_type == kHalf) run<Half>(problem, bs);
  return 0;
}
}
#pragma GCC visibility pop
