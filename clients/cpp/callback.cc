// cpp-callback: the library's own threads call back, and the end of a call starts the next one. The library queues
// ends, so a call that ends at once does not deepen the stack.

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include "driver.h"
#include "open_loop.h"

namespace spangap {
namespace {

class CallbackDriver;

struct CallbackWorker;

// A stream, which holds itself open until it breaks or is closed.
class PingStream : public grpc::ClientBidiReactor<pb::PingRequest, pb::PingResponse> {
 public:
  PingStream(CallbackDriver& driver, CallbackWorker& worker);
  void send();
  void close();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool) override { progress(); }
  void OnDone(const grpc::Status& status) override;

 private:
  void progress();

  CallbackDriver& driver_;
  CallbackWorker& worker_;
  // Callbacks that the ping still waits for; they may come concurrently on different threads.
  std::atomic<unsigned> awaited_{0};
  bool answered_ = false;
  bool expired_ = false;
  bool closing_ = false;
};

struct CallbackWorker : Worker {
  using Worker::Worker;
  std::unique_ptr<PingStream> stream;
  bool pause = false;
};

class CallbackDriver : public Driver {
 public:
  CallbackDriver(Run& run, Channels& channels) : Driver(run) {
    for (unsigned number = 0; number < run.settings.in_flight; ++number) {
      add(callback_workers_.emplace_back(run, channels.of_worker(number)));
    }
  }

  void start() override {
    watch_expiry();
    workers_begin(callback_workers_.size());
    if (run_.settings.rate) {
      const auto send = [this](Worker& worker, uint64_t slot) {
        return this->send(static_cast<CallbackWorker&>(worker), slot);
      };
      const auto retire = [this](Worker& worker) { this->retire(static_cast<CallbackWorker&>(worker)); };
      open_loop_.emplace(run_, workers_, send, retire);
      open_loop_->start();
    } else {
      for (CallbackWorker& worker : callback_workers_) call_next(worker);
    }
  }

  void join() override {
    if (open_loop_) open_loop_->join();
    alarm_.stop();
  }

  // An answered ping is counted as soon as its response has arrived.
  void answered(CallbackWorker& worker) { worker.pause = account_end(worker, grpc::Status::OK, false); }

  void call_ended(CallbackWorker& worker) {
    if (open_loop_) {
      open_loop_->release(worker);
    } else if (worker.pause) {
      alarm_.at(monotonic_ns() + PAUSE_NS, [this, &worker] { call_next(worker); });
    } else {
      call_next(worker);
    }
  }

  void stream_broken(CallbackWorker& worker, bool expired, const grpc::Status& status) {
    worker.pause = account_end(worker, stream_failure(status), expired);
    call_ended(worker);
  }

  void stream_closed() { worker_ended(); }

 private:
  void call_next(CallbackWorker& worker) {
    if (!send(worker, std::nullopt)) retire(worker);
  }

  // Sends the call of an open loop's slot, or the next call of a closed loop. False if no more calls may begin.
  bool send(CallbackWorker& worker, std::optional<uint64_t> slot) {
    const bool unary = run_.settings.call == CallKind::unary;
    if ((unary || !worker.stream) && !worker.renew_context()) return false;
    worker.prepare_call();
    if (slot) {
      run_.send_slot(worker.call, *slot);
    } else if (!run_.send_closed(worker.call)) {
      return false;
    }
    account_begin(worker);
    worker.set_expiry();
    if (!unary) {
      if (!worker.stream) worker.stream = std::make_unique<PingStream>(*this, worker);
      worker.stream->send();
      return true;
    }
    worker.channel.stub->async()->Ping(&*worker.context, &worker.request(), &worker.response,
                                       [this, &worker](const grpc::Status& status) {
                                         const bool expired = !worker.clear_expiry();
                                         worker.pause = account_end(worker, status, expired);
                                         call_ended(worker);
                                       });
    return true;
  }

  void retire(CallbackWorker& worker) {
    if (!worker.stream) {
      worker_ended();
      return;
    }
    cancel_soon(worker);
    worker.stream->close();
  }

  std::deque<CallbackWorker> callback_workers_;
  std::optional<OpenLoop> open_loop_;
};

PingStream::PingStream(CallbackDriver& driver, CallbackWorker& worker) : driver_(driver), worker_(worker) {
  // The header leaves together with the first request.
  worker.context->set_initial_metadata_corked(true);
  worker.channel.stub->async()->PingStream(&*worker.context, this);
  AddHold();
  StartCall();
}

void PingStream::send() {
  awaited_.store(2, std::memory_order_relaxed);
  StartWrite(&worker_.request());
  StartRead(&worker_.response);
}

void PingStream::close() {
  closing_ = true;
  StartWritesDone();
  RemoveHold();
}

void PingStream::OnReadDone(bool ok) {
  expired_ = !worker_.clear_expiry();
  answered_ = ok && !expired_;
  if (answered_) driver_.answered(worker_);
  progress();
}

// A failed write is followed by a failed read.
void PingStream::progress() {
  if (awaited_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  if (answered_) {
    driver_.call_ended(worker_);
  } else {
    // OnDone delivers its status.
    RemoveHold();
  }
}

void PingStream::OnDone(const grpc::Status& status) {
  const std::unique_ptr<PingStream> self = std::move(worker_.stream);
  if (closing_) {
    driver_.stream_closed();
  } else {
    driver_.stream_broken(worker_, expired_, status);
  }
}

}  // namespace

std::unique_ptr<Driver> make_callback_driver(Run& run, Channels& channels) {
  return std::make_unique<CallbackDriver>(run, channels);
}

}  // namespace spangap
