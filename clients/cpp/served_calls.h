// The calls that a target serves, as state machines over a completion queue with one thread.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <set>
#include <vector>

#include "served_health.h"
#include "serving.h"
#include "spangap/ping/v1/ping.grpc.pb.h"
#include "trace.h"
#include "waiter.h"

namespace spangap {

class ServedUnary;
class ServedStream;

// One queue and its thread.
class ServingQueue : public Waiter {
 public:
  ServingQueue(Serving& serving, pb::Ping::AsyncService& service, grpc::health::v1::Health::AsyncService& health,
               std::unique_ptr<grpc::ServerCompletionQueue> queue);
  ~ServingQueue() override;

  // Serves until the queue is shut down and empty.
  void serve();
  // Ends, on the queue's own thread, health watches and the streams that wait for a ping; the other streams end after
  // their answer.
  void end_streams();
  void shut_down() { queue_->Shutdown(); }

 private:
  friend class ServedUnary;
  friend class ServedStream;
  friend class ServedUsage;

  void completed(bool ok) override;
  void accept_unary();

  Serving& serving_;
  pb::Ping::AsyncService& service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  ServedHealth health_;
  grpc::Alarm wake_;
  bool ending_ = false;
  Ids ids_;
  // Completed calls, for reuse.
  std::vector<std::unique_ptr<ServedUnary>> spare_;
  std::set<ServedStream*> streams_;
};

}  // namespace spangap
