// The library's functions that other kernels call. Each is described where it is defined.
#pragma once

#include <cstdint>

extern "C" {

void jetspec_linear(const void* x, int64_t stride, int64_t rows, int64_t depth, const void* packed,
                    int64_t outputs, const void* bias, void* out, int kind);

void jetspec_rms_norm(const void* x, int64_t stride, const void* residual, int64_t residual_stride,
                      const void* weight, void* out, void* residual_out, int64_t rows, int64_t dim,
                      float eps, int type);

void jetspec_silu_and_mul(const void* x, int64_t stride, void* out, int64_t rows, int64_t dim,
                          int type);

int jetspec_rotate(void* x, int64_t stride, int64_t heads, int64_t head_dim, const void* cos_sin,
                   int64_t known, int64_t rotary_dim, const int64_t* positions, int64_t rows,
                   int type);

int jetspec_attention(const void* q, int64_t q_stride, void* out, int64_t out_stride, int io_type,
                      const void* k, int64_t k_stride, const void* v, int64_t v_stride,
                      int pool_type, const int32_t* req_to_token, int64_t req_stride,
                      const int64_t* req_pool_indices, const int64_t* prefix_lens,
                      const int64_t* row_starts, const int64_t* parents, int64_t bs, int64_t rows,
                      int64_t heads, int64_t kv_heads, int64_t k_dim, int64_t v_dim, int mode,
                      float scale, float logit_cap, int dot);
}
