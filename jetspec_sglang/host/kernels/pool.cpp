#include "pool.hpp"

#include <immintrin.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace jetspec {
namespace {

constexpr int kMostThreads = 256;
// Between two kernels of a layer lie some ten microseconds of Python: a worker that sleeps in them
// would have to be woken for each. About 200 us on a CPU of 3 GHz.
constexpr int kSpins = 1 << 13;
constexpr int kSpinsBeforeYield = 1 << 9;

using Clock = std::chrono::steady_clock;
using Nanoseconds = std::chrono::nanoseconds;

// Whether calls are shared at all. When a call had to wait for a thread that lost its core, the next
// ones are done by their caller alone, for longer each time as long as it happens again: with one
// core taken by another process sharing would cost a time slice of the scheduler at every call.
class Patience {
 public:
  bool alone(Clock::time_point now) const { return now < alone_until_; }

  // `waited`: for the others, after the caller's own `tasks`, which took it `worked`.
  void learn(Clock::time_point now, Nanoseconds worked, int64_t tasks, Nanoseconds waited) {
    if (waited < kStall + 2 * worked / std::max<int64_t>(tasks, 1)) return;
    const bool again = now - alone_until_ < 2 * pause_;
    pause_ = again ? std::min<Nanoseconds>(2 * pause_, kLongest) : kShortest;
    alone_until_ = now + pause_;
  }

 private:
  static constexpr Nanoseconds kStall = std::chrono::microseconds(400);
  static constexpr Nanoseconds kShortest = std::chrono::milliseconds(4);
  static constexpr Nanoseconds kLongest = std::chrono::milliseconds(128);

  Nanoseconds pause_ = kShortest;
  Clock::time_point alone_until_{};
};

// Tasks [first, last) that nobody has claimed: `first` in the upper half, `last` in the lower. Its
// thread takes them from the front, one at a time, and so walks through memory in order; a thread
// without tasks takes the back half of another's.
class alignas(64) Share {
 public:
  void set(int64_t first, int64_t last) { range_.store(pack(first, last)); }

  // The next task, or -1.
  int64_t claim() {
    uint64_t range = range_.load();
    while (first_of(range) < last_of(range))
      if (range_.compare_exchange_weak(range, pack(first_of(range) + 1, last_of(range))))
        return first_of(range);
    return -1;
  }

  // Moves the back half of `other`, at least a task, into this share, which is empty.
  bool steal(Share& other) {
    uint64_t range = other.range_.load();
    while (first_of(range) < last_of(range)) {
      const int64_t first = first_of(range), last = last_of(range), middle = first + (last - first) / 2;
      if (other.range_.compare_exchange_weak(range, pack(first, middle))) {
        set(middle, last);
        return true;
      }
    }
    return false;
  }

 private:
  static uint64_t pack(int64_t first, int64_t last) { return uint64_t(first) << 32 | uint64_t(last); }
  static int64_t first_of(uint64_t range) { return int64_t(range >> 32); }
  static int64_t last_of(uint64_t range) { return int64_t(range & 0xffffffff); }

  std::atomic<uint64_t> range_{0};
};

// One call at a time. A worker counts itself in `inside` before it looks at `open`, and the caller
// closes the call before it waits for `inside` to be zero: so nobody uses a call that has returned.
struct State {
  std::atomic<uint64_t> number{0};  // of the call that was published last
  std::atomic<bool> open{false};
  std::atomic<int> inside{0};
  std::atomic<int64_t> left{0};  // tasks that are not done
  Share shares[kMostThreads];
  int threads = 1;
  void (*task)(const void*, int64_t) = nullptr;
  const void* context = nullptr;

  std::mutex busy;  // held by the caller of the current call
  int workers = 0;  // guarded by `busy`, as is the next
  Patience patience;
  std::mutex sleep;
  std::condition_variable wake;
  std::atomic<int> sleeping{0};

  // Does tasks until none is left to begin; how many.
  int64_t help(int place) {
    Share& mine = shares[place];
    int64_t finished = 0;
    do {
      for (int64_t i; (i = mine.claim()) >= 0; ++finished) task(context, i);
    } while (refill(place));
    left.fetch_sub(finished);
    return finished;
  }

  bool refill(int place) {
    for (int other = 1; other < threads; ++other)
      if (shares[place].steal(shares[(place + other) % threads])) return true;
    return false;
  }

  void work(int place) {
    for (uint64_t seen = 0;;) {
      for (int spin = 0; number.load() == seen && spin < kSpins; ++spin) _mm_pause();
      if (number.load() == seen) {
        std::unique_lock lock(sleep);
        ++sleeping;
        wake.wait(lock, [&] { return number.load() != seen; });
        --sleeping;
      }
      seen = number.load();
      ++inside;
      if (open.load() && place < threads) help(place);
      --inside;
    }
  }

  // Whether the call was shared; else the caller must do it alone.
  bool share(int64_t count, int sharers, void (*function)(const void*, int64_t),
             const void* argument) {
    const auto start = Clock::now();
    if (patience.alone(start)) return false;
    for (; workers < sharers - 1; ++workers) std::thread(&State::work, this, workers + 1).detach();
    threads = sharers, task = function, context = argument;
    left.store(count);
    for (int place = 0; place < threads; ++place)
      shares[place].set(count * place / threads, count * (place + 1) / threads);
    open.store(true);
    ++number;
    if (sleeping.load() > 0) {
      { std::lock_guard lock(sleep); }
      wake.notify_all();
    }
    const int64_t mine = help(0);
    const auto worked = Clock::now();
    wait_for([&] { return left.load() == 0; });
    open.store(false);
    wait_for([&] { return inside.load() == 0; });
    const auto end = Clock::now();
    patience.learn(end, worked - start, mine, end - worked);
    return true;
  }

  template <typename F>
  static void wait_for(F&& holds) {
    for (int spin = 1; !holds(); ++spin) {
      _mm_pause();
      // The thread that holds the last task may need this core.
      if (spin % kSpinsBeforeYield == 0) sched_yield();
    }
  }
};

// Never destroyed: workers may outlive the statics of a process that exits. A forked child has none
// of them, and perhaps a lock that one of them held: it starts with a state of its own.
State* state = [] {
  pthread_atfork(nullptr, nullptr, [] { state = new State; });
  return new State;
}();
std::atomic<int> chosen{0};

}  // namespace

int Pool::threads() {
  const int set = chosen.load(std::memory_order_relaxed);
  return std::clamp(set ? set : omp_get_max_threads(), 1, kMostThreads);
}

void Pool::set_threads(int threads) { chosen.store(threads, std::memory_order_relaxed); }

void Pool::share(int64_t count, Task task, const void* context) {
  std::unique_lock owner(state->busy, std::try_to_lock);
  if (!owner.owns_lock() || !state->share(count, threads(), task, context))
    alone(count, task, context);
}

}  // namespace jetspec

#pragma GCC visibility push(default)
extern "C" {

int jetspec_threads() { return jetspec::Pool::threads(); }
void jetspec_set_threads(int threads) { jetspec::Pool::set_threads(threads); }

}  // extern "C"
#pragma GCC visibility pop
