// Several callers at once; every task of every call runs exactly once. Built with ThreadSanitizer.
#include "pool.hpp"

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>
using jetspec::Pool;
int main() {
  Pool::set_threads(4);
  std::atomic<long> bad{0};
  auto caller = [&](int seed) {
    for (int round = 0; round < 4000; ++round) {
      const int64_t n = 1 + (round * 7 + seed) % 67;
      std::vector<int> hits(n, 0);
      Pool::run(n, true, [&](int64_t i) { hits[i] += 1; });
      for (int64_t i = 0; i < n; ++i) if (hits[i] != 1) bad++;
    }
  };
  std::vector<std::thread> ts;
  for (int t = 0; t < 3; ++t) ts.emplace_back(caller, t);
  for (auto& t : ts) t.join();
  std::printf("bad %ld\n", bad.load());
  return bad != 0;
}
