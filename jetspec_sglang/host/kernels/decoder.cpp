// Every layer of a decoder in one call: Llama, Qwen2 and Qwen3 without tensor parallelism.
//
// It calls the kernels of this library in the order in which the model's own layers call them, so
// the bits are the same. What it saves is the time between the calls: no tensor is made, and the
// threads stay awake from one part of a layer to the next.
#include <algorithm>
#include <cstring>
#include <vector>

#include "calls.hpp"
#include "plan.hpp"

namespace jetspec {
namespace {

constexpr int64_t kBlock = 512;  // rows of an MLP at a time: bounds the memory of a long prefill

struct Weight {
  const void *packed, *bias;
};

struct Layer {
  const void *input_norm, *query_norm, *key_norm, *post_norm;
  Weight qkv, output, gate_up, down;
  void *keys = nullptr, *values = nullptr;
};

struct Shape {
  int64_t hidden, heads, kv_heads, head_dim, inner, rotary_dim, positions;
  float eps, head_eps, scale, logit_cap;
  int type, kind;

  int64_t query() const { return heads * head_dim; }
  int64_t kv() const { return kv_heads * head_dim; }
  int64_t qkv() const { return query() + 2 * kv(); }
  int64_t bytes() const { return type == kFloat ? 4 : 2; }
};

struct Requests {
  const int64_t *positions, *slots;
  const int32_t* req_to_token;
  int64_t req_stride;
  const int64_t *req_pool_indices, *prefix_lens, *row_starts, *parents;
  int64_t bs;
  int mode;
};

class Decoder {
 public:
  Decoder(const Shape& shape, const void* cos_sin, const void* norm)
      : s_(shape), cos_sin_(cos_sin), norm_(norm) {}

  std::vector<Layer> layers;

  // 0, 1 for a position without a row in cos_sin, 2 for requests that do not fit.
  int forward(const void* x, int64_t rows, const Requests& r, const int64_t* taps, int64_t tap_count,
              void* tap_out, void* out) {
    const int64_t block = std::min(rows, kBlock);
    char* const residual = take(0, rows * s_.hidden);
    char* const normed = take(1, rows * s_.hidden);
    char* const added = take(2, rows * s_.hidden);
    char* const qkv = take(3, rows * s_.qkv());
    char* const mixed = take(4, rows * s_.query());
    char* const gate_up = take(5, block * 2 * s_.inner);
    char* const active = take(6, block * s_.inner);
    std::memcpy(residual, x, rows * s_.hidden * s_.bytes());

    for (size_t i = 0; i < layers.size(); ++i) {
      const Layer& layer = layers[i];
      if (i == 0)
        jetspec_rms_norm(x, s_.hidden, nullptr, 0, layer.input_norm, normed, nullptr, rows,
                         s_.hidden, s_.eps, s_.type);
      else
        add_and_norm(added, residual, layer.input_norm, normed, rows);
      for (int64_t tap = 0; tap < tap_count; ++tap)
        if (taps[tap] == int64_t(i)) copy_tap(residual, tap_out, rows, tap, tap_count);
      linear(normed, s_.hidden, layer.qkv, s_.qkv(), qkv, rows);
      if (layer.query_norm) norm_heads(qkv, layer, rows);
      if (rotate(qkv, 0, s_.heads, r, rows) || rotate(qkv, s_.query(), s_.kv_heads, r, rows))
        return 1;
      store_kv(qkv, layer, r.slots, rows);
      if (attend(qkv, layer, r, mixed, rows)) return 2;
      linear(mixed, s_.query(), layer.output, s_.hidden, added, rows);
      add_and_norm(added, residual, layer.post_norm, normed, rows);
      for (int64_t first = 0; first < rows; first += block) {
        const int64_t count = std::min(block, rows - first), at = first * s_.hidden * s_.bytes();
        linear(normed + at, s_.hidden, layer.gate_up, 2 * s_.inner, gate_up, count);
        jetspec_silu_and_mul(gate_up, 2 * s_.inner, active, count, s_.inner, s_.type);
        linear(active, s_.inner, layer.down, s_.hidden, added + at, count);
      }
    }
    jetspec_rms_norm(added, s_.hidden, residual, s_.hidden, norm_, out, residual, rows, s_.hidden,
                     s_.eps, s_.type);
    return 0;
  }

 private:
  char* take(int which, int64_t elements) {
    std::vector<char>& memory = memory_[which];
    if (int64_t(memory.size()) < elements * s_.bytes()) memory.resize(elements * s_.bytes());
    return memory.data();
  }

  void linear(const char* x, int64_t depth, const Weight& weight, int64_t outputs, char* out,
              int64_t rows) const {
    jetspec_linear(x, depth, rows, depth, weight.packed, outputs, weight.bias, out, s_.kind);
  }

  void add_and_norm(const char* x, char* residual, const void* weight, char* out,
                    int64_t rows) const {
    jetspec_rms_norm(x, s_.hidden, residual, s_.hidden, weight, out, residual, rows, s_.hidden,
                     s_.eps, s_.type);
  }

  // The heads of a row lie side by side; each is normed as a row of its own.
  void norm_heads(char* qkv, const Layer& layer, int64_t rows) const {
    for (int64_t row = 0; row < rows; ++row) {
      char* const query = qkv + row * s_.qkv() * s_.bytes();
      char* const key = query + s_.query() * s_.bytes();
      jetspec_rms_norm(query, s_.head_dim, nullptr, 0, layer.query_norm, query, nullptr, s_.heads,
                       s_.head_dim, s_.head_eps, s_.type);
      jetspec_rms_norm(key, s_.head_dim, nullptr, 0, layer.key_norm, key, nullptr, s_.kv_heads,
                       s_.head_dim, s_.head_eps, s_.type);
    }
  }

  int rotate(char* qkv, int64_t at, int64_t heads, const Requests& r, int64_t rows) const {
    return jetspec_rotate(qkv + at * s_.bytes(), s_.qkv(), heads, s_.head_dim, cos_sin_,
                          s_.positions, s_.rotary_dim, r.positions, rows, s_.type);
  }

  void store_kv(const char* qkv, const Layer& layer, const int64_t* slots, int64_t rows) const {
    const int64_t size = s_.kv() * s_.bytes();
    for (int64_t row = 0; row < rows; ++row) {
      const char* key = qkv + (row * s_.qkv() + s_.query()) * s_.bytes();
      std::memcpy(static_cast<char*>(layer.keys) + slots[row] * size, key, size);
      std::memcpy(static_cast<char*>(layer.values) + slots[row] * size, key + size, size);
    }
  }

  int attend(const char* qkv, const Layer& layer, const Requests& r, char* out,
             int64_t rows) const {
    return jetspec_attention(qkv, s_.qkv(), out, s_.query(), s_.type, layer.keys, s_.kv(),
                             layer.values, s_.kv(), s_.type, r.req_to_token, r.req_stride,
                             r.req_pool_indices, r.prefix_lens, r.row_starts, r.parents, r.bs, rows,
                             s_.heads, s_.kv_heads, s_.head_dim, s_.head_dim, r.mode, s_.scale,
                             s_.logit_cap);
  }

  void copy_tap(const char* residual, void* out, int64_t rows, int64_t tap, int64_t count) const {
    const int64_t size = s_.hidden * s_.bytes();
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(static_cast<char*>(out) + (row * count + tap) * size, residual + row * size, size);
  }

  Shape s_;
  const void *cos_sin_, *norm_;
  std::vector<char> memory_[7];
};

}  // namespace
}  // namespace jetspec

using namespace jetspec;

#pragma GCC visibility push(default)
extern "C" {

// The caller keeps every tensor that it names alive, and calls from one thread at a time.
void* jetspec_decoder_new(int64_t hidden, int64_t heads, int64_t kv_heads, int64_t head_dim,
                          int64_t inner, const void* cos_sin, int64_t positions, int64_t rotary_dim,
                          const void* norm, float eps, float head_eps, float scale, float logit_cap,
                          int type, int kind) {
  const Shape shape{hidden, heads,    kv_heads, head_dim,  inner, rotary_dim, positions,
                    eps,    head_eps, scale,    logit_cap, type,  kind};
  return new Decoder(shape, cos_sin, norm);
}

void jetspec_decoder_free(void* decoder) { delete static_cast<Decoder*>(decoder); }

// The next layer. `query_norm` and `key_norm`, and any bias, may be null.
void jetspec_decoder_layer(void* decoder, const void* input_norm, const void* qkv,
                           const void* qkv_bias, const void* query_norm, const void* key_norm,
                           const void* output, const void* output_bias, const void* post_norm,
                           const void* gate_up, const void* gate_up_bias, const void* down,
                           const void* down_bias) {
  Layer layer{input_norm,          query_norm,           key_norm,
              post_norm,           {qkv, qkv_bias},      {output, output_bias},
              {gate_up, gate_up_bias}, {down, down_bias}};
  static_cast<Decoder*>(decoder)->layers.push_back(layer);
}

// keys, values [slots, kv_heads, head_dim] of a layer, contiguous.
void jetspec_decoder_pool(void* decoder, int64_t layer, void* keys, void* values) {
  Layer& one = static_cast<Decoder*>(decoder)->layers[layer];
  one.keys = keys;
  one.values = values;
}

// x [rows, hidden] -> out [rows, hidden] after the last norm. tap_out [rows, tap_count, hidden]: what
// enters the layers `taps`. Returns 0, or what was wrong: 1 a position, 2 the requests' rows.
int jetspec_decoder_forward(void* decoder, const void* x, int64_t rows, const int64_t* positions,
                            const int64_t* slots, const int32_t* req_to_token, int64_t req_stride,
                            const int64_t* req_pool_indices, const int64_t* prefix_lens,
                            const int64_t* row_starts, const int64_t* parents, int64_t bs, int mode,
                            const int64_t* taps, int64_t tap_count, void* tap_out, void* out) {
  const Requests requests{positions,   slots,      req_to_token, req_stride, req_pool_indices,
                          prefix_lens, row_starts, parents,      bs,         mode};
  return static_cast<Decoder*>(decoder)->forward(x, rows, requests, taps, tap_count, tap_out, out);
}
}
#pragma GCC visibility pop
