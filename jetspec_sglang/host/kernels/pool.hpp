// The threads that share the work of one kernel call.
//
// A call is cut into tasks, and every thread starts with an equal share of them. A thread that is
// done takes tasks from another's share, and the caller returns when every task is done. So a thread
// that loses its core to another process holds up the one task it has begun; with static shares
// everybody would wait for all of its tasks, at every call. A forked child has no workers: its first
// call starts them.
#pragma once

#include <cstdint>

namespace jetspec {

class Pool {
 public:
  // Runs task(i) for every i in [0, count), in any order, on any thread. With one task, one thread
  // or a pool that another caller uses it is a plain loop.
  template <typename F>
  static void run(int64_t count, bool worth_threads, const F& task) {
    const Task call = [](const void* context, int64_t i) { (*static_cast<const F*>(context))(i); };
    if (count > 1 && worth_threads && threads() > 1)
      share(count, call, &task);
    else
      alone(count, call, &task);
  }

  // Threads that a call is shared among, the caller counted.
  static int threads();
  // 0 follows OpenMP's number of threads, which torch sets.
  static void set_threads(int threads);

 private:
  using Task = void (*)(const void* context, int64_t i);
  static void share(int64_t count, Task task, const void* context);
  static void alone(int64_t count, Task task, const void* context) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
  }
};

}  // namespace jetspec
