// Latency heatmap of the gap on a canvas: minutes across, durations up on a log scale, colour by count.
// Columns and rows are merged until a cell is large enough to see; exponential buckets merge exactly.

import type { Heatmap } from "./api";
import { countColour } from "./colour";
import { el, cssColour } from "./dom";
import { axisDurations, axisLabel, count, counted, dayAndClock, clock, duration, percent, span } from "./format";
import type { Cells } from "./state";
import type { Annotation } from "./timeline";
import { timeTicks } from "./ticks";

/** Cells of the drawn grid. */
export interface Grid {
  /** Unix seconds at which column 0 starts. */
  startS: number;
  /** Seconds per column. */
  columnS: number;
  columns: number;
  /** Bucket scale after merging: row `r` is bucket `firstIndex + r` of this scale. */
  scale: number;
  firstIndex: number;
  rows: number;
  /** `counts[column * rows + row]`. */
  counts: Float64Array;
  most: number;
}

const MINUTE_S = 60;

/** Upper bound in nanoseconds of bucket `index` of a base-2 exponential scale in seconds. */
export function upperBoundNs(index: number, scale: number): number {
  return 2 ** ((index + 1) / 2 ** scale) * 1e9;
}

/** Merges minutes and buckets until there are at most this many columns and rows. */
export function toGrid(map: Heatmap, fromS: number, toS: number, mostColumns: number, mostRows: number): Grid {
  // The history may have only longer steps left: a column narrower than a step would leave its neighbours empty.
  const step = Math.max(1, Math.round((map.step_s ?? MINUTE_S) / MINUTE_S));
  const startMinute = Math.floor(fromS / MINUTE_S / step) * step;
  const minutes = Math.max(1, Math.ceil(toS / MINUTE_S) - startMinute);
  const perColumn = Math.max(1, Math.ceil(minutes / Math.max(1, mostColumns) / step)) * step;
  const columns = Math.ceil(minutes / perColumn);

  const used = map.counts.flatMap((column) => column.flatMap((n, row) => (n > 0 ? [row] : [])));
  const low = map.first_index + (used.length > 0 ? used.reduce((a, b) => Math.min(a, b)) : 0);
  const high = map.first_index + (used.length > 0 ? used.reduce((a, b) => Math.max(a, b)) : 0);
  // A row more on either side, so that a narrow distribution is not drawn from edge to edge.
  let shift = 0;
  while (((high + 1) >> shift) - ((low - 1) >> shift) + 1 > Math.max(1, mostRows)) shift += 1;
  const firstIndex = (low - 1) >> shift;
  const rows = ((high + 1) >> shift) - firstIndex + 1;

  const counts = new Float64Array(columns * rows);
  let most = 0;
  map.unix_s.forEach((unixS, i) => {
    const column = Math.floor((Math.floor(unixS / MINUTE_S) - startMinute) / perColumn);
    if (column < 0 || column >= columns) return;
    map.counts[i]?.forEach((n, row) => {
      if (n === 0) return;
      const cell = column * rows + ((map.first_index + row) >> shift) - firstIndex;
      counts[cell] = (counts[cell] ?? 0) + n;
      most = Math.max(most, counts[cell] ?? 0);
    });
  });
  return {
    startS: startMinute * MINUTE_S,
    columnS: perColumn * MINUTE_S,
    columns,
    scale: map.scale - shift,
    firstIndex,
    rows,
    counts,
    most,
  };
}

/** Where the plot lies on the canvas, in CSS pixels. */
interface Frame {
  left: number;
  top: number;
  width: number;
  height: number;
}

const MIN_CELL_PX = 3;
const AXIS_PX = { left: 62, right: 20, top: 8, bottom: 26 };

export class HeatmapView {
  readonly root = el("div", { class: "heatmap" });
  private readonly canvas = el("canvas", { role: "img", tabindex: "0" });
  private readonly tip = el("div", { class: "tip", hidden: true });
  private readonly legend = el("div", { class: "ramp" });
  private map: Heatmap | null = null;
  private range: [number, number] = [0, 60];
  private happened: Annotation[] = [];
  private grid: Grid | null = null;
  private cell: [number, number] | null = null;
  private readonly box = el("div", { class: "brushed", hidden: true });
  private cells: Cells | null = null;
  private dragFrom: [number, number] | null = null;
  /** The moment pointed at, or none. */
  onMoment: (unixS: number | null) => void = () => {};
  /** Cells chosen by dragging or with Enter, or none. */
  onCells: (cells: Cells | null) => void = () => {};

  private readonly gone = new AbortController();

  constructor() {
    this.root.append(el("div", { class: "plot" }, this.canvas, this.box, this.tip), this.legend);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX, event.offsetY));
    this.canvas.addEventListener("pointerleave", () => this.show(null));
    this.canvas.addEventListener("pointerdown", (event) => {
      this.dragFrom = event.button === 0 ? this.cellAt(event.offsetX, event.offsetY, true) : null;
      if (this.dragFrom) this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      const [from, to] = [this.dragFrom, this.cellAt(event.offsetX, event.offsetY, true)];
      this.dragFrom = null;
      if (from && to) this.onCells(this.within(from, to));
    });
    this.canvas.addEventListener("pointercancel", () => {
      this.dragFrom = null;
      this.drawBox();
    });
    this.canvas.addEventListener("blur", () => this.show(null));
    this.canvas.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    addEventListener("themechange", () => this.draw(), { signal: this.gone.signal });
  }

  /** Marks the cells that are chosen. */
  choose(cells: Cells | null): void {
    this.cells = cells;
    this.drawBox();
  }

  /** The cells between two corners, as a stretch of time and a band of gaps. */
  private within(a: [number, number], b: [number, number]): Cells | null {
    const { grid } = this;
    if (!grid) return null;
    const [left, right] = [Math.min(a[0], b[0]), Math.max(a[0], b[0])];
    const [bottom, top] = [Math.min(a[1], b[1]), Math.max(a[1], b[1])];
    return {
      from: grid.startS + left * grid.columnS,
      to: grid.startS + (right + 1) * grid.columnS,
      // A gap of exactly zero is drawn in the lowest row.
      lowNs: bottom === 0 ? 0 : Math.round(lowOf(grid, bottom)),
      highNs: Math.round(highOf(grid, top)),
    };
  }

  private drawBox(): void {
    const { grid, cells } = this;
    this.box.hidden = !grid || !cells;
    if (!grid || !cells) return;
    const frame = this.frame();
    const share = (unixS: number) => Math.min(1, Math.max(0, (unixS - grid.startS) / (grid.columns * grid.columnS)));
    const [low, high] = [Math.log(lowOf(grid, 0)), Math.log(highOf(grid, grid.rows - 1))];
    const height = (ns: number) => Math.min(1, Math.max(0, (Math.log(Math.max(1, ns)) - low) / (high - low)));
    this.box.style.left = `${frame.left + share(cells.from) * frame.width}px`;
    this.box.style.width = `${(share(cells.to) - share(cells.from)) * frame.width}px`;
    this.box.style.top = `${frame.top + (1 - height(cells.highNs)) * frame.height}px`;
    this.box.style.height = `${(height(cells.highNs) - height(cells.lowNs)) * frame.height}px`;
  }

  /** Ends what outlives its elements. */
  destroy(): void {
    this.gone.abort();
  }

  /** `happened` are drawn as ticks over the whole height. */
  update(map: Heatmap, fromS: number, toS: number, happened: Annotation[] = []): void {
    this.map = map;
    this.range = [fromS, toS];
    this.happened = happened;
    this.draw();
  }

  private frame(): Frame {
    return {
      left: AXIS_PX.left,
      top: AXIS_PX.top,
      width: Math.max(1, this.canvas.clientWidth - AXIS_PX.left - AXIS_PX.right),
      height: Math.max(1, this.canvas.clientHeight - AXIS_PX.top - AXIS_PX.bottom),
    };
  }

  private draw(): void {
    const { map, canvas } = this;
    if (!map || canvas.clientWidth === 0) return;
    const frame = this.frame();
    const [fromS, toS] = this.range;
    const grid = toGrid(map, fromS, toS, Math.floor(frame.width / MIN_CELL_PX), Math.floor(frame.height / MIN_CELL_PX));
    // Time goes on below the cursor: it stays at its minute and at its gap.
    this.cell = this.cell && this.grid && sameCell(this.cell, this.grid, grid);
    this.grid = grid;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(canvas.clientWidth * ratio);
    canvas.height = Math.round(canvas.clientHeight * ratio);
    const context = canvas.getContext("2d");
    if (!context) return;
    context.scale(ratio, ratio);
    const colour = countColour(grid.most);
    const snap = (css: number) => Math.round(css * ratio) / ratio;
    context.fillStyle = cssColour("--plot");
    context.fillRect(frame.left, frame.top, frame.width, frame.height);
    for (let column = 0; column < grid.columns; column++) {
      const x = snap(frame.left + (column / grid.columns) * frame.width);
      const right = snap(frame.left + ((column + 1) / grid.columns) * frame.width);
      for (let row = 0; row < grid.rows; row++) {
        const n = grid.counts[column * grid.rows + row] ?? 0;
        if (n === 0) continue;
        const top = snap(frame.top + (1 - (row + 1) / grid.rows) * frame.height);
        const bottom = snap(frame.top + (1 - row / grid.rows) * frame.height);
        context.fillStyle = colour(n);
        context.fillRect(x, top, right - x, bottom - top);
      }
    }
    this.drawAxes(context, grid, frame);
    this.drawLegend(grid);
    const calls = grid.counts.reduce((sum, n) => sum + n, 0);
    canvas.setAttribute(
      "aria-label",
      calls === 0
        ? "Heatmap of the gap: no calls in this time range"
        : `Heatmap of the gap of ${count(calls)} calls from ${duration(lowOf(grid, 0))} to ` +
            `${duration(highOf(grid, grid.rows - 1))}; arrow keys move from cell to cell, Enter shows the calls of a cell`,
    );
    this.drawBox();
    this.show(this.cell);
  }

  private drawAxes(context: CanvasRenderingContext2D, grid: Grid, frame: Frame): void {
    context.strokeStyle = cssColour("--rule");
    context.fillStyle = cssColour("--quiet");
    context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    context.lineWidth = 1;
    const low = Math.log(lowOf(grid, 0));
    const high = Math.log(highOf(grid, grid.rows - 1));
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const tick of axisDurations(lowOf(grid, 0), highOf(grid, grid.rows - 1), Math.floor(frame.height / 24))) {
      const y = Math.round(frame.top + (1 - (Math.log(tick) - low) / (high - low)) * frame.height) + 0.5;
      context.beginPath();
      context.moveTo(frame.left - 4, y);
      context.lineTo(frame.left, y);
      context.stroke();
      context.fillText(axisLabel(tick), frame.left - 7, y);
    }
    context.textAlign = "center";
    context.textBaseline = "top";
    const endS = grid.startS + grid.columns * grid.columnS;
    for (const tick of timeTicks(grid.startS, endS, Math.floor(frame.width / 64))) {
      const x = Math.round(frame.left + ((tick - grid.startS) / (endS - grid.startS)) * frame.width) + 0.5;
      context.beginPath();
      context.moveTo(x, frame.top + frame.height);
      context.lineTo(x, frame.top + frame.height + 4);
      context.stroke();
      context.fillText(clock(tick), x, frame.top + frame.height + 8);
    }
    for (const { unixS, bad } of this.happened) {
      if (unixS < grid.startS || unixS > endS) continue;
      context.fillStyle = cssColour(bad ? "--bad" : "--client");
      context.fillRect(Math.round(frame.left + ((unixS - grid.startS) / (endS - grid.startS)) * frame.width) - 1, frame.top, 2, frame.height);
    }
    context.strokeRect(frame.left - 0.5, frame.top - 0.5, frame.width + 1, frame.height + 1);
  }

  private drawLegend(grid: Grid): void {
    if (grid.most === 0) {
      this.legend.replaceChildren("no calls in this time range");
      return;
    }
    const ramp = el("canvas", { width: 120, height: 1, "aria-hidden": "true" });
    const context = ramp.getContext("2d");
    const colour = countColour(grid.most);
    for (let x = 0; context && x < 120; x++) {
      context.fillStyle = colour(Math.exp((x / 119) * Math.log(Math.max(1, grid.most))));
      context.fillRect(x, 0, 1, 1);
    }
    const each = `${grid.columnS === MINUTE_S ? "minute" : span(grid.columnS)} and bucket of ${percent(
      2 ** (1 / 2 ** grid.scale) - 1,
    )}`;
    this.legend.replaceChildren("1", ramp, `${counted(grid.most, "call")} per ${each} (log colour scale)`);
  }

  /** The cell at a place of the canvas; `clamped`, the nearest one. */
  private cellAt(x: number, y: number, clamped: boolean): [number, number] | null {
    const { grid } = this;
    if (!grid) return null;
    const frame = this.frame();
    const column = Math.floor(((x - frame.left) / frame.width) * grid.columns);
    const row = Math.floor((1 - (y - frame.top) / frame.height) * grid.rows);
    const near: [number, number] = [Math.min(Math.max(column, 0), grid.columns - 1), Math.min(Math.max(row, 0), grid.rows - 1)];
    return clamped || (near[0] === column && near[1] === row) ? near : null;
  }

  private point(x: number, y: number): void {
    const cell = this.cellAt(x, y, false);
    this.show(cell);
    const { dragFrom } = this;
    if (dragFrom) {
      const before = this.cells;
      this.cells = this.within(dragFrom, this.cellAt(x, y, true) ?? dragFrom);
      this.drawBox();
      this.cells = before;
    }
  }

  private step(event: KeyboardEvent): void {
    const { grid } = this;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, 1],
      ArrowDown: [0, -1],
    };
    if (event.key === "Enter" && grid && this.cell) {
      event.preventDefault();
      this.onCells(this.within(this.cell, this.cell));
      return;
    }
    const move = moves[event.key];
    if (!move || !grid) return;
    event.preventDefault();
    const [column, row] = this.cell ?? busiest(grid);
    const within = (n: number, most: number) => Math.min(Math.max(n, 0), most - 1);
    this.show(
      this.cell ? [within(column + move[0], grid.columns), within(row + move[1], grid.rows)] : [column, row],
    );
  }

  private show(cell: [number, number] | null): void {
    const { grid, tip } = this;
    this.cell = cell;
    tip.hidden = cell === null;
    this.onMoment(cell && grid ? grid.startS + (cell[0] + 0.5) * grid.columnS : null);
    if (!cell || !grid) return;
    const [column, row] = cell;
    const frame = this.frame();
    const n = grid.counts[column * grid.rows + row] ?? 0;
    const all = grid.counts.subarray(column * grid.rows, (column + 1) * grid.rows).reduce((sum, c) => sum + c, 0);
    const at = grid.startS + column * grid.columnS;
    tip.replaceChildren(
      el("b", {}, `${duration(lowOf(grid, row))} – ${duration(highOf(grid, row))}`),
      el("span", {}, `${count(n)} of ${count(all)} calls${all > 0 ? ` (${percent(n / all)})` : ""}`),
      el("span", {}, `${dayAndClock(at)}${grid.columnS > MINUTE_S ? ` – ${clock(at + grid.columnS)}` : ""}`),
    );
    const x = frame.left + ((column + 0.5) / grid.columns) * frame.width;
    const y = frame.top + (1 - (row + 0.5) / grid.rows) * frame.height;
    tip.style.top = `${y}px`;
    tip.classList.toggle("leftwards", x > frame.left + frame.width / 2);
    tip.style.left = `${x}px`;
  }
}

function lowOf(grid: Grid, row: number): number {
  return upperBoundNs(grid.firstIndex + row - 1, grid.scale);
}

function highOf(grid: Grid, row: number): number {
  return upperBoundNs(grid.firstIndex + row, grid.scale);
}

/** Where a cell lies in another grid; none if that ends before it. */
export function sameCell([column, row]: [number, number], from: Grid, to: Grid): [number, number] | null {
  const unixS = from.startS + (column + 0.5) * from.columnS;
  const bucket = from.firstIndex + row + 0.5;
  const there: [number, number] = [Math.floor((unixS - to.startS) / to.columnS), Math.floor(bucket * 2 ** (to.scale - from.scale)) - to.firstIndex];
  return there[0] >= 0 && there[0] < to.columns && there[1] >= 0 && there[1] < to.rows ? there : null;
}

function busiest(grid: Grid): [number, number] {
  const cell = Math.max(0, grid.counts.indexOf(grid.most));
  return [Math.floor(cell / grid.rows), cell % grid.rows];
}
