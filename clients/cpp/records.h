// Records of calls, 64 bytes each, written to a file or FIFO by a separate thread.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tally.h"

namespace spangap {

constexpr uint16_t NO_CONNECTION = 65535;

// The layout of the file: that of CONTRACT.md on a little-endian machine.
struct Record {
  static constexpr uint8_t MEASURED = 1;
  static constexpr uint8_t SLOW = 2;
  static constexpr uint8_t STREAM = 4;

  std::array<uint8_t, 16> trace_id{};
  std::array<uint8_t, 8> span_id{};
  std::array<uint8_t, 8> parent_span_id{};
  uint64_t start_unix_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t lateness_ns = 0;
  uint8_t status = 0;
  uint8_t flags = 0;
  uint16_t connection = NO_CONNECTION;
  uint32_t reserved = 0;
};
static_assert(sizeof(Record) == 64);
static_assert(std::endian::native == std::endian::little);

// A bounded queue that any thread may fill without waiting, and that one thread empties.
class RecordQueue {
 public:
  static constexpr uint64_t CAPACITY = 65'536;

  RecordQueue();
  // False if full: the record is lost.
  bool push(const Record& record);
  bool pop(Record& record);

 private:
  // The cell at place p may be filled when its turn is p, and emptied when its turn is p + 1.
  struct Cell {
    std::atomic<uint64_t> turn;
    Record record;
  };
  std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<uint64_t> filled_{0};
  alignas(64) uint64_t emptied_ = 0;
};

class Records {
 public:
  // Opens the file; a FIFO without a reader is opened once it has one. Throws std::system_error if it cannot be
  // written.
  explicit Records(const std::string& file);
  ~Records();

  // Records keep the id of a connection only if it is still open when they are written: their call then had it to its
  // end. To be called before the first record.
  void check_connections(std::function<bool(uint16_t)> is_open) { is_open_ = std::move(is_open); }

  // Never waits. False if the queue is full: the caller counts the record as dropped.
  bool push(const Record& record) { return queue_.push(record); }

  // Writes what is queued, for at most two seconds, and ends the thread.
  void close();

  // Records of a phase that left the queue and found no reader, since the last query.
  uint64_t take_lost(Phase phase) { return lost_[static_cast<unsigned>(phase)].exchange(0); }

 private:
  // As many bytes as a FIFO accepts whole or not at all, so that no record is ever split.
  static constexpr size_t BATCH = 4096 / sizeof(Record);

  bool open_file();
  void run();
  void keep_known_connections(Record* records, size_t count);
  bool write_batch(const Record* records, size_t count);
  bool time_is_up() const;

  std::string file_;
  std::function<bool(uint16_t)> is_open_;
  int descriptor_ = -1;
  bool broken_ = false;
  RecordQueue queue_;
  std::array<std::atomic<uint64_t>, PHASES> lost_{};
  // When to stop trying, once closed.
  std::atomic<int64_t> give_up_ns_;
  std::atomic<bool> closing_{false};
  std::thread writer_;
};

}  // namespace spangap
