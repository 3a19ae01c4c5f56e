// Vectors that begin at a cache line, so that a machine vector in them never lies in two.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace jetspec {

template <typename T>
struct LineAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  LineAllocator() = default;
  template <typename U>
  LineAllocator(const LineAllocator<U>&) {}

  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, kLine); }
  bool operator==(const LineAllocator&) const { return true; }
  bool operator!=(const LineAllocator&) const { return false; }
};

template <typename T>
using Aligned = std::vector<T, LineAllocator<T>>;

}  // namespace jetspec
