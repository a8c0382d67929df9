#include "records.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "clock.h"

namespace spangap {
namespace {

// Interval between checks of the queue. At 100,000 records/s it is 3 % full by then.
constexpr int64_t LOOK_EVERY_NS = 20 * MILLISECOND_NS;
constexpr int64_t CLOSE_WITHIN_NS = 2 * SECOND_NS;

}  // namespace

RecordQueue::RecordQueue() : cells_(std::make_unique<Cell[]>(CAPACITY)) {
  for (uint64_t at = 0; at < CAPACITY; ++at) cells_[at].turn.store(at, std::memory_order_relaxed);
}

bool RecordQueue::push(const Record& record) {
  uint64_t place = filled_.load(std::memory_order_relaxed);
  for (;;) {
    Cell& cell = cells_[place % CAPACITY];
    const uint64_t turn = cell.turn.load(std::memory_order_acquire);
    if (turn == place) {
      if (!filled_.compare_exchange_weak(place, place + 1, std::memory_order_relaxed)) continue;
      cell.record = record;
      cell.turn.store(place + 1, std::memory_order_release);
      return true;
    }
    if (turn < place) return false;
    place = filled_.load(std::memory_order_relaxed);
  }
}

bool RecordQueue::pop(Record& record) {
  Cell& cell = cells_[emptied_ % CAPACITY];
  if (cell.turn.load(std::memory_order_acquire) != emptied_ + 1) return false;
  record = cell.record;
  cell.turn.store(emptied_ + CAPACITY, std::memory_order_release);
  ++emptied_;
  return true;
}

Records::Records(const std::string& file) : file_(file), give_up_ns_(NEVER_NS) {
  if (!open_file() && errno != ENXIO) {
    throw std::system_error(errno, std::generic_category(), "cannot write the record file " + file_);
  }
  writer_ = std::thread([this] { run(); });
}

Records::~Records() { close(); }

void Records::close() {
  if (!writer_.joinable()) return;
  give_up_ns_ = monotonic_ns() + CLOSE_WITHIN_NS;
  closing_ = true;
  writer_.join();
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool Records::open_file() {
  descriptor_ = open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0644);
  return descriptor_ >= 0;
}

bool Records::time_is_up() const { return monotonic_ns() >= give_up_ns_; }

void Records::run() {
  std::array<Record, BATCH> batch;
  for (;;) {
    // Read before the queue is found empty, so that everything pushed before the closing is seen.
    const bool closing = closing_;
    if (descriptor_ < 0 && !broken_ && !open_file()) {
      // Without a reader of the FIFO, records stay in the queue; at the end, nobody is left to give them to.
      broken_ = errno != ENXIO || closing;
      if (!broken_) {
        sleep_until(monotonic_ns() + LOOK_EVERY_NS);
        continue;
      }
    }
    size_t count = 0;
    while (count < BATCH && queue_.pop(batch[count])) ++count;
    if (count == 0) {
      if (closing) return;
      sleep_until(monotonic_ns() + LOOK_EVERY_NS);
      continue;
    }
    if (is_open_) keep_known_connections(batch.data(), count);
    if (!write_batch(batch.data(), count)) {
      for (size_t at = 0; at < count; ++at) ++lost_[batch[at].flags & Record::MEASURED];
    }
  }
}

void Records::keep_known_connections(Record* records, size_t count) {
  // Most neighbours have the same one.
  uint16_t last = NO_CONNECTION;
  bool last_is_open = true;
  for (Record* record = records; record < records + count; ++record) {
    if (record->connection == NO_CONNECTION) continue;
    if (record->connection != last) {
      last = record->connection;
      last_is_open = is_open_(last);
    }
    if (!last_is_open) record->connection = NO_CONNECTION;
  }
}

bool Records::write_batch(const Record* records, size_t count) {
  const char* from = reinterpret_cast<const char*>(records);
  size_t left = count * sizeof(Record);
  while (left > 0 && !broken_) {
    const ssize_t written = write(descriptor_, from, left);
    if (written >= 0) {
      from += written;
      left -= written;
    } else if (errno == EAGAIN) {
      pollfd writable = {descriptor_, POLLOUT, 0};
      poll(&writable, 1, 50);
      broken_ = time_is_up();
    } else if (errno != EINTR) {
      fprintf(stderr, "spangap-cpp: cannot write the record file %s: %s\n", file_.c_str(), strerror(errno));
      broken_ = true;
    }
  }
  return left == 0;
}

}  // namespace spangap
