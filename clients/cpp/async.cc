// cpp-async: completion queues with one thread each, among which the calls are divided.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "driver.h"
#include "open_loop.h"

namespace spangap {
namespace {

using Reader = grpc::ClientAsyncResponseReader<pb::PingResponse>;
using Stream = grpc::ClientAsyncReaderWriter<pb::PingRequest, pb::PingResponse>;

// What a completion means; it travels in the low bits of the worker's address.
enum Event : uintptr_t { UNARY_DONE, WRITTEN, RESPONSE_READ, STREAM_ENDED, HALF_CLOSED, EVENT_MASK = 7 };

struct AsyncWorker : Worker {
  AsyncWorker(Run& run, Channel& channel, grpc::CompletionQueue& queue) : Worker(run, channel), queue(queue) {}

  void* tag(Event event) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(this) | event); }

  grpc::CompletionQueue& queue;
  // Both live in their call's own memory, so they must be destroyed before their context is renewed.
  std::unique_ptr<Reader> reader;
  std::unique_ptr<Stream> stream;
  // Completions of the stream that must arrive before the next operation on it.
  unsigned awaited = 0;
  bool answered = false;
  bool expired = false;
  bool pause = false;
  bool closing = false;
};

class AsyncDriver : public Driver {
 public:
  AsyncDriver(Run& run, Channels& channels) : Driver(run), queues_(run.settings.threads) {
    for (unsigned number = 0; number < run.settings.in_flight; ++number) {
      auto& queue = queues_[number % queues_.size()];
      add(async_workers_.emplace_back(run, channels.of_worker(number), queue));
    }
  }

  void start() override {
    watch_expiry();
    workers_begin(async_workers_.size());
    if (run_.settings.rate) {
      const auto send = [this](Worker& worker, uint64_t slot) {
        return this->send(static_cast<AsyncWorker&>(worker), slot);
      };
      open_loop_.emplace(run_, workers_, send, [this](Worker& worker) { retire(static_cast<AsyncWorker&>(worker)); });
      open_loop_->start();
    }
    for (unsigned number = 0; number < queues_.size(); ++number) {
      threads_.emplace_back([this, number] { serve_queue(number); });
    }
  }

  void join() override {
    if (open_loop_) open_loop_->join();
    alarm_.stop();
    for (grpc::CompletionQueue& queue : queues_) queue.Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void serve_queue(unsigned number) {
    if (!open_loop_) {
      for (size_t at = number; at < async_workers_.size(); at += queues_.size()) call_next(async_workers_[at]);
    }
    void* tag;
    bool ok;
    while (queues_[number].Next(&tag, &ok)) {
      const auto address = reinterpret_cast<uintptr_t>(tag);
      auto& worker = *reinterpret_cast<AsyncWorker*>(address & ~uintptr_t{EVENT_MASK});
      handle(worker, static_cast<Event>(address & EVENT_MASK), ok);
    }
  }

  void handle(AsyncWorker& worker, Event event, bool ok) {
    switch (event) {
      case UNARY_DONE:
        worker.expired = !worker.clear_expiry();
        worker.pause = account_end(worker, worker.status, worker.expired);
        call_ended(worker);
        break;
      case RESPONSE_READ:
        worker.expired = !worker.clear_expiry();
        worker.answered = ok && !worker.expired;
        if (worker.answered) worker.pause = account_end(worker, grpc::Status::OK, false);
        ping_progress(worker);
        break;
      case WRITTEN:
        // A failed write is followed by a failed read, which has the reason.
        ping_progress(worker);
        break;
      case STREAM_ENDED:
        if (!worker.closing) {
          worker.pause = account_end(worker, stream_failure(worker.status), worker.expired);
        }
        stream_progress(worker);
        break;
      case HALF_CLOSED:
        stream_progress(worker);
        break;
      case EVENT_MASK:
        break;
    }
  }

  void ping_progress(AsyncWorker& worker) {
    if (--worker.awaited > 0) return;
    if (worker.answered) {
      call_ended(worker);
    } else {
      worker.awaited = 1;
      worker.stream->Finish(&worker.status, worker.tag(STREAM_ENDED));
    }
  }

  void stream_progress(AsyncWorker& worker) {
    if (--worker.awaited > 0) return;
    worker.stream.reset();
    if (worker.closing) {
      worker_ended();
    } else {
      call_ended(worker);
    }
  }

  void call_ended(AsyncWorker& worker) {
    if (open_loop_) {
      open_loop_->release(worker);
    } else if (worker.pause) {
      alarm_.at(monotonic_ns() + PAUSE_NS, [this, &worker] { call_next(worker); });
    } else {
      call_next(worker);
    }
  }

  void call_next(AsyncWorker& worker) {
    if (!send(worker, std::nullopt)) retire(worker);
  }

  // Sends the call of an open loop's slot, or the next call of a closed loop. False if no more calls may begin.
  bool send(AsyncWorker& worker, std::optional<uint64_t> slot) {
    const bool unary = run_.settings.call == CallKind::unary;
    if (unary) worker.reader.reset();
    if ((unary || !worker.stream) && !worker.renew_context()) return false;
    worker.prepare_call();
    if (slot) {
      run_.send_slot(worker.call, *slot);
    } else if (!run_.send_closed(worker.call)) {
      return false;
    }
    account_begin(worker);
    worker.set_expiry();
    if (unary) {
      worker.reader = worker.channel.stub->AsyncPing(&*worker.context, worker.request(), &worker.queue);
      worker.reader->Finish(&worker.response, &worker.status, worker.tag(UNARY_DONE));
    } else {
      send_in_stream(worker);
    }
    return true;
  }

  void send_in_stream(AsyncWorker& worker) {
    if (!worker.stream) {
      // The header leaves together with the first request, so the start has no completion of its own.
      worker.context->set_initial_metadata_corked(true);
      worker.stream = worker.channel.stub->AsyncPingStream(&*worker.context, &worker.queue, nullptr);
    }
    worker.awaited = 2;
    worker.stream->Write(worker.request(), worker.tag(WRITTEN));
    worker.stream->Read(&worker.response, worker.tag(RESPONSE_READ));
  }

  void retire(AsyncWorker& worker) {
    if (!worker.stream) {
      worker_ended();
      return;
    }
    worker.closing = true;
    worker.awaited = 2;
    cancel_soon(worker);
    worker.stream->WritesDone(worker.tag(HALF_CLOSED));
    worker.stream->Finish(&worker.status, worker.tag(STREAM_ENDED));
  }

  std::deque<grpc::CompletionQueue> queues_;
  std::deque<AsyncWorker> async_workers_;
  std::optional<OpenLoop> open_loop_;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Driver> make_async_driver(Run& run, Channels& channels) {
  return std::make_unique<AsyncDriver>(run, channels);
}

}  // namespace spangap
