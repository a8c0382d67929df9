import assert from "node:assert/strict";
import { counted, figure, stretchWords, visible } from "../src/format";
import { test } from "node:test";
import { axisDurations, axisLabel, bytes, count, duration, interval, moment, percent, shortCount, span } from "../src/format";

const plain = (text: string) => text.replace(/\u202f/g, " ");

test("durations have three significant digits and the unit that fits", () => {
  const cases: [number, string][] = [
    [0, "0"],
    [7, "7 ns"],
    [999, "999 ns"],
    [1_000, "1.00 us"],
    [12_345, "12.3 us"],
    [999_400, "999 us"],
    [999_500, "1.00 ms"],
    [9_812_345, "9.81 ms"],
    [9_996_000, "10.0 ms"],
    [99_960_000, "100 ms"],
    [1_250_000_000, "1.25 s"],
    [59.9e9, "59.9 s"],
    [60e9, "1.00 min"],
    [2 * 86_400e9, "2.00 d"],
  ];
  for (const [ns, text] of cases) assert.equal(plain(duration(ns)), text);
});

test("a stretch names its day once, and one thing is no plural", () => {
  const at = (day: number, hour: number, minute: number) => new Date(2026, 2, day, hour, minute).getTime() / 1000;
  assert.equal(stretchWords({ from: at(1, 14, 5), to: at(1, 14, 20) }), "2026-03-01 14:05 – 14:20");
  assert.equal(stretchWords({ from: at(1, 23, 50), to: at(2, 0, 5) }, "to"), "2026-03-01 23:50 to 2026-03-02 00:05");
  assert.deepEqual([0, 1, 1_234].map((n) => counted(n, "call")), ["0 calls", "1 call", "1,234 calls"]);
});

test("an interval is in the unit of its value", () => {
  assert.equal(interval(9.8e6, [9.1e6, 10.6e6]), "9.10–10.6");
  assert.equal(interval(1.02e6, [980e3, 1.1e6]), "0.980–1.10");
  assert.equal(interval(402e3, [331e3, 4.557e6]), "331–4,557");
});

test("counts", () => {
  assert.equal(plain(count(1_234_567)), "1,234,567");
  assert.equal(plain(shortCount(9_999)), "9,999");
  assert.equal(plain(shortCount(12_345)), "12.3 k");
  assert.equal(plain(shortCount(4_718_302)), "4.72 M");
});

test("a share is never rounded to all or to nothing", () => {
  assert.equal(plain(percent(1)), "100 %");
  assert.equal(plain(percent(0)), "0 %");
  assert.deepEqual([1.047_22, 1.004, 12.3].map((share) => plain(percent(share))), ["105 %", "100.4 %", "1230 %"], "the end of an interval above the whole");
  for (const nearly of [0.999, 0.9999, 0.99999, 0.9999999]) assert.ok(!percent(nearly).startsWith("100"), percent(nearly));
  assert.equal(plain(percent(0.380_4)), "38.0 %");
  assert.equal(plain(percent(1e-7)), "< 0.01 %");
  assert.equal(percent(null), "–");
});

test("sizes, spans of time, moments", () => {
  assert.equal(plain(bytes(2 ** 30)), "1.00 GiB");
  assert.equal(plain(bytes(512)), "512 B");
  assert.equal(plain(span(11_520)), "3 h 12 min");
  assert.equal(plain(span(0)), "0 s");
  assert.match(moment(1_700_000_000_123_456_789n), /^\d\d:\d\d:20\.123456$/);
});

test("an axis is labelled with round durations, within its ends, not too many", () => {
  for (const [low, high] of [[80e3, 50e6], [1e6, 2.5e6], [1, 3_600e9], [4.2e6, 4.4e6]] as const) {
    const ticks = axisDurations(low, high, 9);
    assert.ok(ticks.length <= 9, `${ticks.length} for ${low} to ${high}`);
    for (const tick of ticks) assert.ok(tick >= low && tick <= high);
  }
  assert.deepEqual(axisDurations(80e3, 3e6, 9).map((tick) => plain(axisLabel(tick))), ["100 us", "200 us", "500 us", "1 ms", "2 ms"]);
});

test("names are seen, whatever they are made of", () => {
  for (const plain of ["frontend", "größe-日本語", "<b>x</b>", "می‌خواهم", "👩‍🚀", "a b"]) assert.equal(visible(plain), plain);
  assert.equal(visible("\u202eevil\u200b"), "‹U+202E›evil‹U+200B›");
  assert.equal(visible("a\tb\n"), "a‹U+0009›b‹U+000A›");
  assert.deepEqual([visible(""), visible(" ")], ["“”", "“ ”"]);
});

test("numbers of any kind", () => {
  assert.deepEqual([0, 1_048_576, 0.5, -3.25, 12.5].map((one) => figure(one)), ["0", "1,048,576", "0.500", "−3.25", "12.5"]);
});
