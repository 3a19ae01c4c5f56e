// Attention of the host platform: reads K/V in place through slot ids, any mask of the engine.
//
// A row's keys form a list: the request's cached prefix in order, then the request's own new rows
// that it sees, in order (in a tree: from the root down to itself). The arithmetic of a row
// depends on that list alone. Keys are taken in chunks of kChunk by their place in the list; a
// chunk's softmax is computed by itself and folded into the row's running state, first chunk
// first. Hence a row has the same bits alone, in a tree, in a prefill chunk, at any batch and
// with any number of threads.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "aligned.hpp"
#include "attention_tiles.hpp"
#include "attention_vectors.hpp"
#include "calls.hpp"
#include "kernels.hpp"
#include "plan.hpp"
#include "pool.hpp"
#include "tiles.hpp"

namespace jetspec {
namespace {

constexpr int64_t kWorthThreads = 200000;  // multiply-adds from which threads pay off

// Memory of one thread, kept from call to call.
struct Scratch {
  Aligned<float> scores, running, fresh;
  Aligned<Word> queries;
  std::vector<int32_t> own_slots, rest_slots;
  std::vector<size_t> own_ends;

  static Scratch& mine() {
    static thread_local Scratch scratch;
    return scratch;
  }
};

// One thread's work on a tile; Math is how it multiplies.
template <typename Math>
class TileRunner {
 public:
  TileRunner(const Problem& problem, const Tile& tile, Scratch& scratch)
      : p_(problem), tile_(tile), scratch_(scratch), math_(problem, tile.kv_head, (tile.last - tile.first) * problem.group()) {
    read();
  }

  // The tile's state over its chunk-th chunk alone.
  void attend(int64_t chunk, State state) {
    const int64_t group = p_.group(), from = chunk * kChunk;
    const int32_t* const slots = slots_of_request() + from;
    const int64_t shared = std::clamp<int64_t>(tile_.shared - from, 0, kChunk);
    // Shared keys that no row's own keys share a step with.
    const int64_t alike = shared / Math::kKeyStep * Math::kKeyStep;
    float* const scores = scratch_.scores.data();
    clear(state);

    math_.score(queries(0), rows(), slots, shared, scores);
    for (int64_t row = tile_.first; row < tile_.last; ++row) {
      const int64_t x0 = (row - tile_.first) * group;
      const Own own = own_keys(row, from);
      if (own.count)
        math_.score(queries(x0), group, own.slots, own.count, scores + x0 * kScoreStride + shared);
      for (int64_t x = x0; x < x0 + group; ++x)
        soften(scores + x * kScoreStride, shared + own.count, state.top[x], state.total[x]);
    }
    math_.mix(scores, 0, rows(), slots, alike, state.acc);
    for (int64_t row = tile_.first; row < tile_.last; ++row) {
      const int64_t x0 = (row - tile_.first) * group;
      const Own rest = join(slots + alike, shared - alike, own_keys(row, from));
      if (rest.count)
        math_.mix(scores + x0 * kScoreStride, alike, group, rest.slots, rest.count,
                  state.acc + x0 * value_dim());
    }
  }

  void close(const State& state) {
    const int64_t group = p_.group(), dim = value_dim();
    for (int64_t row = tile_.first; row < tile_.last; ++row)
      for (int64_t head = 0; head < group; ++head) {
        const int64_t x = (row - tile_.first) * group + head;
        const int64_t at = (p_.row_starts[tile_.request] + row) * p_.out_stride +
                           (tile_.kv_head * group + head) * p_.v_dim;
        with_io([&](auto type) {
          auto* to = static_cast<decltype(type)*>(p_.out) + at;
          for (int64_t d = 0; d < p_.v_dim; d += kLanes)
            store(to + d, load(state.acc + x * dim + d) / broadcast(state.total[x]));
        });
      }
  }

  void fold(const State& chunk, State running) { running.fold(chunk, rows(), value_dim()); }

  void clear(State state) { state.clear(rows(), value_dim()); }

  // In `memory`, which keeps what it holds. Math reads up to kRowStep rows from any row on.
  State state(Aligned<float>& memory) {
    memory.resize(State::floats(rows(), value_dim()) + Math::kRowStep * value_dim());
    return State(memory.data(), rows(), value_dim());
  }

 private:
  struct Own {
    const int32_t* slots;
    int64_t count;
  };

  // (row, head) pairs, and values of a pair, as Math computes them.
  int64_t rows() const {
    const int64_t rows = (tile_.last - tile_.first) * p_.group();
    return rows < Math::kRowStep ? rows : rounded(rows, Math::kRowStep);
  }
  int64_t value_dim() const { return rounded(p_.v_dim, Math::kValueStep); }
  static int64_t rounded(int64_t size, int64_t step) { return (size + step - 1) / step * step; }

  const int32_t* slots_of_request() const {
    return p_.req_to_token + p_.req_pool_indices[tile_.request] * p_.req_stride;
  }

  typename Math::Query* queries(int64_t x) {
    return reinterpret_cast<typename Math::Query*>(scratch_.queries.data()) +
           x * Math::query_dim(p_.k_dim);
  }

  // The tile's queries, and its rows' own keys.
  void read() {
    const int64_t group = p_.group(), dim = Math::query_dim(p_.k_dim);
    const int64_t most = rows() + Math::kRowStep;
    scratch_.queries.resize(most * dim * sizeof(typename Math::Query) / sizeof(Word));
    scratch_.scores.resize(most * kScoreStride);
    scratch_.own_slots.clear();
    scratch_.own_ends.clear();
    for (int64_t row = tile_.first; row < tile_.last; ++row) {
      const int64_t at = (p_.row_starts[tile_.request] + row) * p_.q_stride +
                         tile_.kv_head * group * p_.k_dim;
      for (int64_t head = 0; head < group; ++head) {
        auto* const to = queries((row - tile_.first) * group + head);
        with_io([&](auto type) {
          const auto* const from = static_cast<const decltype(type)*>(p_.q) + at + head * p_.k_dim;
          for (int64_t d = 0; d < p_.k_dim; d += kLanes) store(to + d, load(from + d));
        });
        std::fill(to + p_.k_dim, to + dim, typename Math::Query{});
      }
      if (p_.mode == kTree) list_ancestors(row);
    }
  }

  template <typename F>
  void with_io(F&& f) const {
    if (p_.io_type == kFloat) f(float());
    if (p_.io_type == kBFloat16) f(BFloat16());
    if (p_.io_type == kHalf) f(Half());
  }

  // Slots of the rows from below the root down to `row`, appended to scratch_.own_slots.
  void list_ancestors(int64_t row) {
    const int32_t* slots = slots_of_request() + p_.prefix_lens[tile_.request];
    const int64_t* parents = p_.parents + p_.row_starts[tile_.request];
    const size_t begin = scratch_.own_slots.size();
    for (int64_t node = row; node > 0; node = parents[node]) scratch_.own_slots.push_back(slots[node]);
    std::reverse(scratch_.own_slots.begin() + begin, scratch_.own_slots.end());
    scratch_.own_ends.push_back(scratch_.own_slots.size());
  }

  // The keys of `row` after the tile's shared ones, as far as they lie in the chunk.
  Own own_keys(int64_t row, int64_t from) const {
    const int32_t* slots;
    int64_t count;
    if (p_.mode == kTree) {
      const size_t i = row - tile_.first, begin = i ? scratch_.own_ends[i - 1] : 0;
      slots = scratch_.own_slots.data() + begin;
      count = scratch_.own_ends[i] - begin;
    } else {
      slots = slots_of_request() + tile_.shared;
      count = p_.mode == kCausal ? row - tile_.first : 0;
    }
    const int64_t skip = std::clamp<int64_t>(from - tile_.shared, 0, count);
    const int64_t stop = std::clamp<int64_t>(from + kChunk - tile_.shared, skip, count);
    return {slots + skip, stop - skip};
  }

  // `count` slots, then a row's own.
  Own join(const int32_t* slots, int64_t count, Own own) {
    if (count == 0) return own;
    scratch_.rest_slots.assign(slots, slots + count);
    scratch_.rest_slots.insert(scratch_.rest_slots.end(), own.slots, own.slots + own.count);
    return {scratch_.rest_slots.data(), count + own.count};
  }

  // Products to weights relative to the largest.
  void soften(float* scores, int64_t count, float& top, float& total) const {
    if (count == 0) return;
    const int64_t end = rounded(count, std::max<int64_t>(kLanes, Math::kKeyStep));
    for (int64_t i = 0; i < end; i += kLanes) {
      Vec score = load(scores + i) * p_.scale;
      if (p_.logit_cap > 0) score = tanh(score / broadcast(p_.logit_cap)) * p_.logit_cap;
      store(scores + i, score);
    }
    std::fill(scores + count, scores + end, -kInf);
    Vec above = broadcast(-kInf);
    for (int64_t i = 0; i < end; i += kLanes) above = max(above, load(scores + i));
    top = largest(above);
    Vec weights{};
    for (int64_t i = 0; i < end; i += kLanes) {
      const Vec weight = exp_negative(load(scores + i) - top);
      Math::store_weights(scores, i, weight);
      weights = weights + weight;
    }
    total = sum(weights);
  }

  const Problem& p_;
  const Tile& tile_;
  Scratch& scratch_;
  Math math_;
};

template <typename Math>
void run(const Problem& problem, int64_t bs) {
  const Plan plan(problem, bs, Pool::threads());
  // Where tiles are split, every task leaves its state here for the tile's fold.
  const bool split = plan.tasks.size() > plan.tiles.size();
  std::vector<Aligned<float>> partial(split ? plan.tasks.size() : 0);
  const bool worth_threads = plan.work >= kWorthThreads;
  Pool::run(plan.tasks.size(), worth_threads, [&](int64_t i) {
    Scratch& scratch = Scratch::mine();
    const Task& task = plan.tasks[i];
    TileRunner<Math> runner(problem, plan.tiles[task.tile], scratch);
    if (split) return runner.attend(task.first, runner.state(partial[i]));
    State running = runner.state(scratch.running);
    const State fresh = runner.state(scratch.fresh);
    runner.clear(running);
    for (int64_t chunk = task.first; chunk < task.last; ++chunk) {
      runner.attend(chunk, fresh);
      runner.fold(fresh, running);
    }
    runner.close(running);
  });
  if (!split) return;
  Pool::run(plan.tasks.size(), worth_threads, [&](int64_t i) {
    if (plan.tasks[i].first != 0) return;
    Scratch& scratch = Scratch::mine();
    const Tile& tile = plan.tiles[plan.tasks[i].tile];
    TileRunner<Math> runner(problem, tile, scratch);
    State running = runner.state(scratch.running);
    runner.clear(running);
    for (int64_t chunk = 0; chunk < tile.chunks; ++chunk)
      runner.fold(runner.state(partial[i + chunk]), running);
    runner.close(running);
  });
}

}  // namespace
}  // namespace jetspec

#pragma GCC visibility push(default)
extern "C" {

// Returns 0, or 1 (nothing written) when the requests' rows do not fit the tensors given.
// Types: 0 float32, 1 bfloat16, 2 float16. Modes: 0 causal, 1 full, 2 tree. `dot`: see dot.hpp; tiles
// need q and the pools in bfloat16, all others are vectors.
int jetspec_attention(const void* q, int64_t q_stride, void* out, int64_t out_stride, int io_type,
                      const void* k, int64_t k_stride, const void* v, int64_t v_stride,
                      int pool_type, const int32_t* req_to_token, int64_t req_stride,
                      const int64_t* req_pool_indices, const int64_t* prefix_lens,
                      const int64_t* row_starts, const int64_t* parents, int64_t bs, int64_t rows,
                      int64_t heads, int64_t kv_heads, int64_t k_dim, int64_t v_dim, int mode,
                      float scale, float logit_cap, int dot) {
  using namespace jetspec;
  const Problem problem{q,        out,       q_stride,   out_stride, k,        v,
                        k_stride, v_stride,  req_to_token, req_stride, req_pool_indices,
                        prefix_lens, row_starts, parents, heads,    kv_heads, k_dim,
                        v_dim,    mode,      io_type,    scale,      logit_cap};
  if (!well_formed(problem, bs, rows)) return 1;
#ifdef JETSPEC_TILES
  if (dot == kTileDot) {
    run<TileMath>(problem, bs);
    return 0;
  }
#endif
  if (pool_type == kFloat) run<VectorMath<float>>(problem, bs);
  if (pool_type == kBFloat16) run<VectorMath<BFloat16>>(problem, bs);
  if (pool_type == kHalf) run<VectorMath<Half>>(problem, bs);
  return 0;
}
}
#pragma GCC visibility pop
