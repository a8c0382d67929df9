// Nanoseconds in buckets no wider than 1/1024 of their value, with the exact maximum and sum.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>

namespace spangap {

class Histogram {
 public:
  void record(uint64_t ns) {
    const Place place = place_of(ns);
    count_at(place, 1);
    max_ns_ = std::max(max_ns_, ns);
    sum_ns_ += ns;
    ++count_;
  }

  void add(const Histogram& other) {
    for (unsigned row = 0; row < ROWS; ++row) {
      if (!other.rows_[row]) continue;
      for (unsigned column = 0; column < COLUMNS; ++column) {
        if (const uint32_t count = (*other.rows_[row])[column]) count_at({row, column}, count);
      }
    }
    max_ns_ = std::max(max_ns_, other.max_ns_);
    sum_ns_ += other.sum_ns_;
    count_ += other.count_;
  }

  // Forgets all values, but keeps the memory.
  void clear() {
    if (count_ == 0) return;
    for (auto& row : rows_) {
      if (row) row->fill(0);
    }
    max_ns_ = sum_ns_ = count_ = 0;
  }

  uint64_t max_ns() const { return max_ns_; }
  uint64_t sum_ns() const { return sum_ns_; }

  // Calls `see(ns, count)` for each non-empty bucket, in ascending order, with the middle of the bucket.
  template <typename See>
  void each_bucket(See see) const {
    for (unsigned row = 0; row < ROWS; ++row) {
      if (!rows_[row]) continue;
      for (unsigned column = 0; column < COLUMNS; ++column) {
        if (const uint32_t count = (*rows_[row])[column]) see(middle({row, column}), count);
      }
    }
  }

 private:
  // Row 0 has a bucket for each of 0..1023; row r divides 1024 << (r-1) to twice that into 1024 equal parts.
  static constexpr unsigned COLUMN_BITS = 10;
  static constexpr unsigned COLUMNS = 1u << COLUMN_BITS;
  static constexpr unsigned ROWS = 64 - COLUMN_BITS + 1;
  // A histogram is emptied once a second, so 32 bits are enough.
  using Row = std::array<uint32_t, COLUMNS>;

  struct Place {
    unsigned row;
    unsigned column;
  };

  static Place place_of(uint64_t ns) {
    if (ns < COLUMNS) return {0, static_cast<unsigned>(ns)};
    const unsigned row = std::bit_width(ns) - COLUMN_BITS;
    return {row, static_cast<unsigned>(ns >> (row - 1)) - COLUMNS};
  }

  static uint64_t middle(Place place) {
    if (place.row == 0) return place.column;
    const unsigned shift = place.row - 1;
    return (uint64_t{COLUMNS + place.column} << shift) + ((uint64_t{1} << shift) >> 1);
  }

  void count_at(Place place, uint32_t count) {
    auto& row = rows_[place.row];
    if (!row) row = std::make_unique<Row>();
    (*row)[place.column] += count;
  }

  std::array<std::unique_ptr<Row>, ROWS> rows_;
  uint64_t max_ns_ = 0;
  uint64_t sum_ns_ = 0;
  uint64_t count_ = 0;
};

}  // namespace spangap
