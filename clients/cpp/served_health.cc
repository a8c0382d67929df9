#include "served_health.h"

#include <string>

namespace spangap {
namespace {

namespace health = grpc::health::v1;

// The empty name means the server as a whole.
bool known(const std::string& name) {
  return name.empty() || name == "spangap.ping.v1.Ping" || name == "grpc.health.v1.Health";
}

class HealthCheck : public Waiter {
 public:
  explicit HealthCheck(ServedHealth& served) : served_(served), responder_(&context_) {
    served.service.RequestCheck(&context_, &request_, &responder_, &served.queue, &served.queue, this);
  }

  void completed(bool ok) override {
    if (answered_ || !ok) {
      delete this;
      return;
    }
    answered_ = true;
    new HealthCheck(served_);
    if (known(request_.service())) {
      health::HealthCheckResponse response;
      response.set_status(health::HealthCheckResponse::SERVING);
      responder_.Finish(response, grpc::Status::OK, this);
    } else {
      responder_.FinishWithError({grpc::StatusCode::NOT_FOUND, "no service " + request_.service()}, this);
    }
  }

 private:
  ServedHealth& served_;
  grpc::ServerContext context_;
  health::HealthCheckRequest request_;
  grpc::ServerAsyncResponseWriter<health::HealthCheckResponse> responder_;
  bool answered_ = false;
};

}  // namespace

// Sends the status, which does not change, and stays until the caller or the target ends it.
class HealthWatch : public Waiter {
 public:
  explicit HealthWatch(ServedHealth& served) : served_(served), writer_(&context_), gone_(*this) {
    context_.AsyncNotifyWhenDone(&gone_);
    served.service.RequestWatch(&context_, &request_, &writer_, &served.queue, &served.queue, this);
  }

  void completed(bool ok) override {
    if (!accepted_) {
      if (!ok) {
        delete this;
        return;
      }
      accepted_ = true;
      served_.watches.insert(this);
      new HealthWatch(served_);
      health::HealthCheckResponse response;
      response.set_status(known(request_.service()) ? health::HealthCheckResponse::SERVING
                                                    : health::HealthCheckResponse::SERVICE_UNKNOWN);
      busy_ = true;
      writer_.Write(response, this);
      return;
    }
    busy_ = false;
    if (finished_) {
      finish_is_back_ = true;
      leave();
    } else if (ending_) {
      finish();
    }
  }

  void end(const grpc::Status& status) {
    if (ending_) return;
    ending_ = true;
    status_ = status;
    if (!busy_) finish();
  }

 private:
  // Notified when the call is over, whoever ended it.
  struct Gone : Waiter {
    explicit Gone(HealthWatch& watch) : watch(watch) {}
    void completed(bool) override {
      watch.gone_is_back_ = true;
      watch.end(grpc::Status::CANCELLED);
      watch.leave();
    }
    HealthWatch& watch;
  };

  void finish() {
    finished_ = true;
    writer_.Finish(status_, this);
  }

  void leave() {
    if (!finish_is_back_ || !gone_is_back_) return;
    served_.watches.erase(this);
    delete this;
  }

  ServedHealth& served_;
  grpc::ServerContext context_;
  health::HealthCheckRequest request_;
  grpc::ServerAsyncWriter<health::HealthCheckResponse> writer_;
  Gone gone_;
  grpc::Status status_;
  bool accepted_ = false;
  bool busy_ = false;
  bool ending_ = false;
  bool finished_ = false;
  bool finish_is_back_ = false;
  bool gone_is_back_ = false;
};

void ServedHealth::start() {
  new HealthCheck(*this);
  new HealthWatch(*this);
}

void ServedHealth::end(const grpc::Status& status) {
  for (HealthWatch* watch : watches) watch->end(status);
}

}  // namespace spangap
