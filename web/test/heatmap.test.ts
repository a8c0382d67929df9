import assert from "node:assert/strict";
import { test } from "node:test";
import type { Heatmap, PairPoint, Quantiles } from "../src/api";
import { toGrid, upperBoundNs } from "../src/heatmap";
import { timeTicks } from "../src/ticks";
import { minutesPerPoint, toColumns } from "../src/timeseries";

/** A map with pseudo-random counts; the same for the same seed. */
function randomMap(seed: number, minutes: number, rows: number): Heatmap {
  let state = seed;
  const next = (most: number) => {
    state = (state * 48_271) % 2_147_483_647;
    return state % most;
  };
  const first = -200 + next(100);
  return {
    scale: 4,
    first_index: first,
    upper_bounds_ns: Array.from({ length: rows }, (_, i) => upperBoundNs(first + i, 4)),
    unix_s: Array.from({ length: minutes }, (_, i) => 1_700_000_040 + i * 60).filter(() => next(5) > 0),
    counts: Array.from({ length: minutes }, () => Array.from({ length: rows }, () => (next(3) === 0 ? next(1_000) : 0))),
  };
}

test("merging columns and rows keeps every call and each in its place", () => {
  for (let seed = 1; seed <= 20; seed++) {
    const map = randomMap(seed, 5 + seed * 9, 1 + seed * 4);
    map.counts.length = map.unix_s.length;
    const from = 1_700_000_040;
    const to = from + (5 + seed * 9) * 60;
    for (const [columns, rows] of [[10_000, 10_000], [40, 60], [7, 3]] as const) {
      const grid = toGrid(map, from, to, columns, rows);
      assert.ok(grid.columns <= columns && grid.rows <= Math.max(rows, 3), `${grid.columns} × ${grid.rows}`);
      const want = new Map<number, number>();
      map.unix_s.forEach((at, c) =>
        map.counts[c]!.forEach((n, r) => {
          if (n === 0) return;
          const column = Math.floor((at - grid.startS) / grid.columnS);
          // By the bounds, not by the index arithmetic under test: a value just below the bucket's upper bound.
          const value = map.upper_bounds_ns[r]! * 0.999_999;
          let row = 0;
          while (upperBoundNs(grid.firstIndex + row, grid.scale) < value) row += 1;
          want.set(column * grid.rows + row, (want.get(column * grid.rows + row) ?? 0) + n);
        }),
      );
      grid.counts.forEach((n, cell) => assert.equal(n, want.get(cell) ?? 0, `seed ${seed}, cell ${cell}`));
      assert.equal(grid.most, Math.max(0, ...want.values()));
    }
  }
});

test("minutes outside the range and an empty map draw nothing", () => {
  const map = randomMap(3, 10, 8);
  map.counts.length = map.unix_s.length;
  assert.equal(toGrid(map, 1_600_000_000, 1_600_000_900, 100, 100).most, 0);
  const empty: Heatmap = { scale: 4, first_index: 0, upper_bounds_ns: [], unix_s: [], counts: [] };
  const grid = toGrid(empty, 0, 900, 100, 100);
  assert.equal(grid.most, 0);
  assert.equal(grid.columns, 15);
});

test("time ticks are whole steps within the range and not too many", () => {
  for (const minutes of [15, 60, 360, 1440]) {
    const from = 1_700_000_123;
    const ticks = timeTicks(from, from + minutes * 60, 8);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, `${ticks.length}`);
    for (const tick of ticks) assert.ok(tick % 60 === 0 && tick >= from && tick <= from + minutes * 60);
  }
});

const QUANTILES: Quantiles = {
  count: 10,
  p50_ns: 1e6,
  p90_ns: 2e6,
  p95_ns: 3e6,
  p99_ns: 4e6,
  p999_ns: 5e6,
  max_ns: 6e6,
  mean_ns: 1e6,
  p50_ci95_ns: [9e5, 11e5],
  p99_ci95_ns: [3e6, 5e6],
};

const point = (unixS: number, p99Ns: number, calls = 10): PairPoint => {
  const quantiles = { ...QUANTILES, count: calls, p99_ns: p99Ns };
  return { unix_s: unixS, open: false, gap: quantiles, client_duration: quantiles, server_duration: quantiles, lost_ns_total: 1 };
};

test("lines break where there were no calls", () => {
  const [at, , , p99] = toColumns([point(600, 4e6), point(720, 5e6), point(780, 0, 0)], 600, 900);
  assert.deepEqual(at, [630, 690, 750, 810, 870]);
  assert.deepEqual(p99, [4e6, null, 5e6, null, null]);
});

test("over a day a point is the median of its minutes", () => {
  assert.equal(minutesPerPoint(0, 900), 1);
  assert.equal(minutesPerPoint(0, 3_600), 1);
  assert.equal(minutesPerPoint(0, 21_600), 5);
  assert.equal(minutesPerPoint(0, 86_400), 15);
  const [, , , p99] = toColumns([point(0, 1e6), point(60, 9e6), point(120, 2e6)], 0, 86_400);
  assert.equal(p99?.[0], 2e6);
  assert.equal(p99?.[1], null);
});
