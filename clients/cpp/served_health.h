// grpc.health.v1.Health on a queue of the target: everything is serving from start to stop.
#pragma once

#include <grpcpp/grpcpp.h>

#include <set>

#include "health.grpc.pb.h"
#include "waiter.h"

namespace spangap {

class HealthWatch;

class ServedHealth {
 public:
  ServedHealth(grpc::health::v1::Health::AsyncService& service, grpc::ServerCompletionQueue& queue)
      : service(service), queue(queue) {}

  // Accepts the first calls. All of this runs on the queue's thread.
  void start();
  // Ends all watches with the status of the service's stop.
  void end(const grpc::Status& status);

  grpc::health::v1::Health::AsyncService& service;
  grpc::ServerCompletionQueue& queue;
  std::set<HealthWatch*> watches;
};

}  // namespace spangap
