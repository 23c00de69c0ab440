//go:build ignore

// One rank of a Gloo job that times an all-reduce over TCP; see peers.go.
// The line above keeps the Go tool from compiling this file.

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static int64_t ns(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

class Bench {
 public:
  Bench(std::shared_ptr<gloo::Context> context, size_t bytes)
      : context_(context), bytes_(bytes), buf_(bytes / 4), opts_(context) {
    // The options are made only once, which is fastest for Gloo.
    opts_.setOutput(buf_.data(), buf_.size());
    opts_.setReduceFunction(
        static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  }

  void measure(double budgetUs, int iters) {
    check();
    std::fill(buf_.begin(), buf_.end(), 0.0f);
    int fit = calibrate(budgetUs);
    if (iters > 0)
      time(iters, INT64_MAX);
    else
      time(fit, int64_t(2e3 * budgetUs));
    check();
  }

 private:
  static constexpr int kMinIters = 5, kMaxIters = 100000;  // copies are in mpi.c and bench/compare/measure.go

  void run() { gloo::allreduce(opts_); }

  // check runs the operation on known values.
  void check() {
    int rank = context_->rank, ranks = context_->size;
    for (size_t i = 0; i < buf_.size(); i++) buf_[i] = i % 13 + rank;
    run();
    for (size_t i = 0; i < buf_.size(); i++)
      if (buf_[i] != float(ranks * (i % 13) + ranks * (ranks - 1) / 2))
        throw std::runtime_error("wrong result");
  }

  static double middle(const double m[3]) {
    return std::clamp(m[2], std::min(m[0], m[1]), std::max(m[0], m[1]));
  }

  // calibrate warms up and returns how many iterations fit into the budget, by the
  // median of the last three batches. A single slow batch must not reduce the
  // number to a few.
  int calibrate(double budgetUs) {
    double fit = 0, total = 0, mean[3];
    gloo::BroadcastOptions agree(context_);
    agree.setOutput(&fit, 1);
    agree.setRoot(0);
    for (int64_t batch = 1, k = 0;; batch *= 2, k++) {
      auto start = Clock::now();
      for (int64_t i = 0; i < batch; i++) run();
      double us = ns(Clock::now() - start) / 1e3;
      total += us;
      mean[k % 3] = us / batch;
      fit = total >= budgetUs / 4 && k >= 2 ? budgetUs / middle(mean) : 0;
      gloo::broadcast(agree);
      if (fit > 0) return int(std::clamp<double>(fit, kMinIters, kMaxIters));
    }
  }

  // time measures each iteration from return to return, on every rank. Ten times per
  // loop the ranks agree whether a busy machine has made it take too long.
  void time(int iters, int64_t limit) {
    std::vector<int64_t> t;
    t.reserve(iters);
    int over = 0;
    gloo::BroadcastOptions agree(context_);
    agree.setOutput(&over, 1);
    agree.setRoot(0);
    gloo::BarrierOptions together(context_);
    gloo::barrier(together);
    auto start = Clock::now(), last = start;
    for (int i = 0; i < iters && !over; i++) {
      run();
      auto end = Clock::now();
      t.push_back(ns(end - last));
      last = end;
      if ((i + 1) % (iters / 10 + 1) == 0) {
        over = ns(end - start) > limit;
        gloo::broadcast(agree);
        last = Clock::now();
      }
    }
    iters = int(t.size());
    std::sort(t.begin(), t.end());
    std::vector<double> mine = {t[iters / 2] / 1e3, t[int64_t(iters) * 99 / 100] / 1e3,
                                t[int64_t(iters) * 999 / 1000] / 1e3, t[0] / 1e3,
                                iters * 1e9 / ns(last - start)};
    std::vector<double> all(mine.size() * context_->size);
    gloo::AllgatherOptions gather(context_);
    gather.setInput(mine.data(), mine.size());
    gather.setOutput(all.data(), all.size());
    gloo::allgather(gather);
    for (int r = 0; context_->rank == 0 && r < context_->size; r++) {
      double* s = all.data() + mine.size() * r;
      printf("R %zu %d %d %.3f %.3f %.3f %.3f %.1f\n", bytes_, r, iters, s[0], s[1], s[2], s[3], s[4]);
      fflush(stdout);
    }
  }

  std::shared_ptr<gloo::Context> context_;
  size_t bytes_;
  std::vector<float> buf_;
  gloo::AllreduceOptions opts_;
};

int main(int argc, char** argv) try {
  if (argc != 8 || std::string(argv[1]) != "allreduce")
    throw std::runtime_error("arguments: allreduce sizes budget_us iterations rank ranks folder");
  gloo::transport::tcp::attr attr("127.0.0.1");
  auto device = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(argv[7]);
  auto context = std::make_shared<gloo::rendezvous::Context>(atoi(argv[5]), atoi(argv[6]));
  context->connectFullMesh(store, device);
  std::stringstream sizes(argv[2]);
  for (std::string size; std::getline(sizes, size, ',');)
    Bench(context, std::stoul(size)).measure(atof(argv[3]), atoi(argv[4]));
  gloo::BarrierOptions together(context);
  gloo::barrier(together);
  return 0;
} catch (const std::exception& e) {
  std::cerr << "rank " << (argc > 5 ? argv[5] : "?") << ": " << e.what() << "\n";
  return 1;
}
