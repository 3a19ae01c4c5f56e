// x @ weight.T in bfloat16 on AMX, the matrix unit of Intel's server CPUs since 2023.
//
// A step here is a block of 32 inputs. TDPBF16PS adds the products of the block's even inputs and of
// its odd ones, each from first to last, and both sums to the output. So an output's bits depend on
// the row and the weight alone, as with the other kinds of step.
#pragma once

#include <cstdint>

#include "dot.hpp"

namespace jetspec {

// x [rows, depth] with rows `stride` apart, a packed weight, a bias or null -> out [rows, outputs].
struct TileProduct {
  const BFloat16* x;
  int64_t stride, rows, depth;
  const Word* packed;
  int64_t outputs;
  const BFloat16* bias;
  BFloat16* out;
};

// Whether the CPU has AMX and the operating system lets this process use it.
bool tiles_allowed();

// Only where `tiles_allowed`.
void multiply_tiles(const TileProduct& product);

}  // namespace jetspec
