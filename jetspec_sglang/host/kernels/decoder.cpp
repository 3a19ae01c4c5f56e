// Every layer of a decoder in one call: Llama, Qwen2, Qwen3 and draft heads of their kind, without
// tensor parallelism.
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
  Weight qkv, output, gate_up, down, context_kv;
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
  Weight context{};
  const void* context_norm = nullptr;
  int64_t context_width = 0;

  // What a head keeps of rows of taps: each layer's keys and values. 0, or 1 for a position without a
  // row in cos_sin.
  int feed(const void* taps, int64_t stride, int64_t rows, const int64_t* positions,
           const int64_t* slots) {
    char* const projected = take(0, rows * s_.hidden);
    char* const normed = take(1, rows * s_.hidden);
    char* const kv = take(2, rows * 2 * s_.kv());
    jetspec_linear(taps, stride, rows, context_width, context.packed, s_.hidden, context.bias,
                   projected, s_.kind);
    jetspec_rms_norm(projected, s_.hidden, nullptr, 0, context_norm, normed, nullptr, rows,
                     s_.hidden, s_.eps, s_.type);
    for (const Layer& layer : layers) {
      linear(normed, s_.hidden, layer.context_kv, 2 * s_.kv(), kv, rows);
      for (int64_t row = 0; layer.key_norm && row < rows; ++row)
        norm_heads(kv + row * 2 * s_.kv() * s_.bytes(), layer.key_norm, s_.kv_heads);
      if (rotate(kv, 2 * s_.kv(), s_.kv_heads, positions, rows)) return 1;
      store_kv(kv, 2 * s_.kv(), layer, slots, rows);
    }
    return 0;
  }

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
      char* const keys = qkv + s_.query() * s_.bytes();
      for (int64_t row = 0; layer.query_norm && row < rows; ++row) {
        const int64_t at = row * s_.qkv() * s_.bytes();
        norm_heads(qkv + at, layer.query_norm, s_.heads);
        norm_heads(keys + at, layer.key_norm, s_.kv_heads);
      }
      if (rotate(qkv, s_.qkv(), s_.heads, r.positions, rows) ||
          rotate(keys, s_.qkv(), s_.kv_heads, r.positions, rows))
        return 1;
      store_kv(keys, s_.qkv(), layer, r.slots, rows);
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

  // Heads that lie side by side, each normed as a row of its own.
  void norm_heads(char* heads, const void* weight, int64_t count) const {
    jetspec_rms_norm(heads, s_.head_dim, nullptr, 0, weight, heads, nullptr, count, s_.head_dim,
                     s_.head_eps, s_.type);
  }

  int rotate(char* x, int64_t stride, int64_t heads, const int64_t* positions, int64_t rows) const {
    return jetspec_rotate(x, stride, heads, s_.head_dim, cos_sin_, s_.positions, s_.rotary_dim,
                          positions, rows, s_.type);
  }

  // The keys of a row, with its values behind them; rows `stride` elements apart.
  void store_kv(const char* keys, int64_t stride, const Layer& layer, const int64_t* slots,
                int64_t rows) const {
    const int64_t size = s_.kv() * s_.bytes();
    for (int64_t row = 0; row < rows; ++row, keys += stride * s_.bytes()) {
      std::memcpy(static_cast<char*>(layer.keys) + slots[row] * size, keys, size);
      std::memcpy(static_cast<char*>(layer.values) + slots[row] * size, keys + size, size);
    }
  }

  int attend(const char* qkv, const Layer& layer, const Requests& r, char* out,
             int64_t rows) const {
    return jetspec_attention(qkv, s_.qkv(), out, s_.query(), s_.type, layer.keys, s_.kv(),
                             layer.values, s_.kv(), s_.type, r.req_to_token, r.req_stride,
                             r.req_pool_indices, r.prefix_lens, r.row_starts, r.parents, r.bs, rows,
                             s_.heads, s_.kv_heads, s_.head_dim, s_.head_dim, r.mode, s_.scale,
                             s_.logit_cap, s_.kind);
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

// The next layer. `query_norm` and `key_norm`, any bias, and `context_kv` may be null.
void jetspec_decoder_layer(void* decoder, const void* input_norm, const void* qkv,
                           const void* qkv_bias, const void* query_norm, const void* key_norm,
                           const void* output, const void* output_bias, const void* post_norm,
                           const void* gate_up, const void* gate_up_bias, const void* down,
                           const void* down_bias, const void* context_kv,
                           const void* context_kv_bias) {
  Layer layer{input_norm,
              query_norm,
              key_norm,
              post_norm,
              {qkv, qkv_bias},
              {output, output_bias},
              {gate_up, gate_up_bias},
              {down, down_bias},
              {context_kv, context_kv_bias}};
  static_cast<Decoder*>(decoder)->layers.push_back(layer);
}

// Of a draft head: fc [hidden, width] and the norm behind it, through which taps enter its context.
void jetspec_decoder_context(void* decoder, const void* fc, const void* bias, int64_t width,
                             const void* norm) {
  Decoder& head = *static_cast<Decoder*>(decoder);
  head.context = {fc, bias};
  head.context_norm = norm;
  head.context_width = width;
}

// taps [rows, width], rows `stride` apart. Returns 0, or 1 for a wrong position.
int jetspec_decoder_feed(void* decoder, const void* taps, int64_t stride, int64_t rows,
                         const int64_t* positions, const int64_t* slots) {
  return static_cast<Decoder*>(decoder)->feed(taps, stride, rows, positions, slots);
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
