#include "served_calls.h"


#include <optional>
#include <string>

#include "clock.h"

namespace spangap {
namespace {

// Calls of each kind that the library may accept before the next request for one.
constexpr unsigned ACCEPTED_UNARY = 64;
constexpr unsigned ACCEPTED_STREAMS = 16;
// A response larger than this is not kept for the next call.
constexpr size_t KEPT_BYTES = 1 << 20;

const grpc::Status STOPS(grpc::StatusCode::UNAVAILABLE, "the target stops");

}  // namespace

class ServedUnary : public Waiter {
 public:
  explicit ServedUnary(ServingQueue& queue) : queue_(queue) {}

  void accept() {
    state_ = State::accepting;
    responder_.reset();
    context_.emplace();
    responder_.emplace(&*context_);
    auto* const queue = queue_.queue_.get();
    queue_.service_.RequestPing(&*context_, &request_, &*responder_, queue, queue, this);
  }

  void completed(bool ok) override {
    if (state_ == State::accepting && ok) {
      received();
    } else {
      // Answered, or the server is shut down.
      if (response_.payload().size() > KEPT_BYTES) response_ = {};
      queue_.spare_.emplace_back(this);
    }
  }

 private:
  enum class State { accepting, answering };

  void received() {
    ping_ = queue_.serving_.receive();
    queue_.serving_.set_parent(ping_, *context_, queue_.ids_);
    uint64_t think_ns;
    status_ = queue_.serving_.prepare(request_, response_, think_ns);
    if (status_.ok() && think_ns > 0) {
      queue_.serving_.alarm.at(ping_.received_ns + static_cast<int64_t>(think_ns), [this] { answer(); });
      queue_.accept_unary();
    } else {
      answer();
      queue_.accept_unary();
    }
  }

  // Runs on the queue's thread, or on the alarm's after the think time.
  void answer() {
    state_ = State::answering;
    if (queue_.serving_.cut_off()) status_ = grpc::Status::CANCELLED;
    queue_.serving_.answer(ping_, status_);
    if (status_.ok()) {
      responder_->Finish(response_, status_, this);
    } else {
      responder_->FinishWithError(status_, this);
    }
  }

  ServingQueue& queue_;
  State state_ = State::accepting;
  std::optional<grpc::ServerContext> context_;
  std::optional<grpc::ServerAsyncResponseWriter<pb::PingResponse>> responder_;
  pb::PingRequest request_;
  pb::PingResponse response_;
  grpc::Status status_;
  ServedPing ping_;
};

// One ping at a time: read, think, write, read the next.
class ServedStream : public Waiter {
 public:
  explicit ServedStream(ServingQueue& queue) : queue_(queue), stream_(&context_), ending_(*this) {
    auto* const completions = queue_.queue_.get();
    queue_.service_.RequestPingStream(&context_, &stream_, completions, completions, this);
  }

  void completed(bool ok) override {
    switch (state_) {
      case State::accepting:
        if (!ok) {
          delete this;
          return;
        }
        queue_.streams_.insert(this);
        new ServedStream(queue_);
        read_next();
        break;
      case State::reading:
        if (ok) {
          received();
        } else {
          finish(grpc::Status::OK);
        }
        break;
      case State::writing:
        if (ok) {
          read_next();
        } else {
          finish(grpc::Status::OK);
        }
        break;
      case State::finishing_while_reading:
        read_is_back_ = true;
        finished_part();
        break;
      case State::finishing:
        break;
    }
  }

  void end_if_idle() {
    if (state_ != State::reading) return;
    state_ = State::finishing_while_reading;
    read_is_back_ = false;
    stream_.Finish(STOPS, &ending_);
  }

 private:
  enum class State { accepting, reading, writing, finishing, finishing_while_reading };

  // Waits for the end of the stream; a read may be pending at the same time.
  struct Ending : Waiter {
    explicit Ending(ServedStream& stream) : stream(stream) {}
    void completed(bool) override {
      stream.finish_is_back_ = true;
      stream.finished_part();
    }
    ServedStream& stream;
  };

  void finished_part() {
    if (!read_is_back_ || !finish_is_back_) return;
    queue_.streams_.erase(this);
    delete this;
  }

  void read_next() {
    if (queue_.ending_) {
      finish(STOPS);
      return;
    }
    state_ = State::reading;
    stream_.Read(&request_, this);
  }

  void received() {
    ping_ = queue_.serving_.receive();
    queue_.serving_.set_parent(ping_, request_, queue_.ids_);
    uint64_t think_ns;
    const grpc::Status status = queue_.serving_.prepare(request_, response_, think_ns);
    state_ = State::writing;
    if (!status.ok()) {
      queue_.serving_.answer(ping_, status);
      finish(status);
    } else if (think_ns > 0) {
      queue_.serving_.alarm.at(ping_.received_ns + static_cast<int64_t>(think_ns), [this] { write(); });
    } else {
      write();
    }
  }

  // Runs on the queue's thread, or on the alarm's after the think time.
  void write() {
    if (queue_.serving_.cut_off()) {
      queue_.serving_.answer(ping_, grpc::Status::CANCELLED);
      finish(grpc::Status::CANCELLED);
      return;
    }
    queue_.serving_.answer(ping_, grpc::Status::OK);
    stream_.Write(response_, this);
  }

  void finish(const grpc::Status& status) {
    state_ = State::finishing;
    stream_.Finish(status, &ending_);
  }

  ServingQueue& queue_;
  State state_ = State::accepting;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<pb::PingResponse, pb::PingRequest> stream_;
  Ending ending_;
  bool read_is_back_ = true;
  bool finish_is_back_ = false;
  pb::PingRequest request_;
  pb::PingResponse response_;
  ServedPing ping_;
};

class ServedUsage : public Waiter {
 public:
  explicit ServedUsage(ServingQueue& queue) : queue_(queue), responder_(&context_) {
    auto* const completions = queue_.queue_.get();
    queue_.service_.RequestUsage(&context_, &request_, &responder_, completions, completions, this);
  }

  void completed(bool ok) override {
    if (answered_ || !ok) {
      delete this;
      return;
    }
    answered_ = true;
    new ServedUsage(queue_);
    responder_.Finish(queue_.serving_.usage(), grpc::Status::OK, this);
  }

 private:
  ServingQueue& queue_;
  grpc::ServerContext context_;
  grpc::ServerAsyncResponseWriter<pb::UsageResponse> responder_;
  pb::UsageRequest request_;
  bool answered_ = false;
};

ServingQueue::ServingQueue(Serving& serving, pb::Ping::AsyncService& service,
                           grpc::health::v1::Health::AsyncService& health,
                           std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : serving_(serving), service_(service), queue_(std::move(queue)), health_(health, *queue_) {}

ServingQueue::~ServingQueue() = default;

void ServingQueue::serve() {
  for (unsigned count = 0; count < ACCEPTED_UNARY; ++count) accept_unary();
  for (unsigned count = 0; count < ACCEPTED_STREAMS; ++count) new ServedStream(*this);
  new ServedUsage(*this);
  health_.start();
  void* waiter;
  bool ok;
  while (queue_->Next(&waiter, &ok)) static_cast<Waiter*>(waiter)->completed(ok);
}

void ServingQueue::accept_unary() {
  if (ending_) return;
  if (spare_.empty()) spare_.push_back(std::make_unique<ServedUnary>(*this));
  // Once answered, it returns by itself.
  ServedUnary* const call = spare_.back().release();
  spare_.pop_back();
  call->accept();
}

void ServingQueue::end_streams() { wake_.Set(queue_.get(), gpr_now(GPR_CLOCK_MONOTONIC), this); }

void ServingQueue::completed(bool) {
  ending_ = true;
  // A stream that ends at once leaves the set by itself, but only at a later completion.
  for (ServedStream* stream : streams_) stream->end_if_idle();
  health_.end(STOPS);
}

}  // namespace spangap
