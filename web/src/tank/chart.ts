// A chart: curves over one x axis, and a legend with the values at the cursor, which pointer and keyboard move.

import uPlot from "uplot";
import { cssColour, el, svg } from "../dom";

export interface Curve {
  label: string;
  /** A colour variable of the style sheet. */
  colour: string;
  dash?: number[];
  width?: number;
  /** How points are drawn: filled, hollow, or not at all. */
  points: "filled" | "hollow" | "none";
  values: (number | null)[];
  /** Smallest and largest of the repetitions, drawn as a band. */
  band?: { low: (number | null)[]; high: (number | null)[] };
  /** Curves of one group share an entry of the legend, labelled with the group. */
  group?: string;
  hidden?: boolean;
}

export interface Axis {
  log: boolean;
  range: [number, number];
  ticks: (low: number, high: number, most: number) => number[];
  label: (value: number) => string;
}

export interface Spec {
  /** Description for screen readers. */
  title: string;
  x: number[];
  xText: (value: number) => string;
  yText: (value: number) => string;
  xAxis: Axis;
  yAxis: Axis;
  xName: string;
  yName: string;
  curves: Curve[];
  /** A shaded part of the x axis. */
  shaded?: [number, number];
}

interface Entry {
  indexes: number[];
  button: HTMLButtonElement;
  value: HTMLElement;
}

const LEFT_PX = 62;

export class Chart {
  readonly root = el("div", { class: "chart" });
  private readonly frame = el("div", { class: "plot", tabindex: 0, role: "img" });
  private readonly at = el("p", { class: "at", "aria-live": "polite" });
  private readonly legend = el("ul", { class: "legend" });
  private readonly hidden = new Set<string>();
  private spec: Spec | null = null;
  private plot: uPlot | null = null;
  private entries: Entry[] = [];

  constructor(private readonly heightPx = 320) {
    this.root.append(this.frame, this.at, this.legend);
    this.frame.addEventListener("keydown", (event) => this.step(event));
    this.frame.addEventListener("blur", () => this.moveTo(null));
    new ResizeObserver(() => this.resize()).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.rebuild());
  }

  update(spec: Spec): void {
    this.spec = spec;
    for (const curve of spec.curves) if (curve.hidden) this.hidden.add(keyOf(curve));
    this.frame.setAttribute("aria-label", `${spec.title}; left and right arrow keys read the values`);
    this.buildLegend(spec);
    this.rebuild();
  }

  private buildLegend(spec: Spec): void {
    const groups = new Map<string, number[]>();
    spec.curves.forEach((curve, i) => groups.set(keyOf(curve), [...(groups.get(keyOf(curve)) ?? []), i]));
    this.entries = [...groups].map(([label, indexes]) => {
      const value = el("span", { class: "value" });
      const curve = spec.curves[indexes[0] ?? 0];
      const button = el("button", { type: "button", "aria-pressed": String(!this.hidden.has(label)) }, swatch(curve, indexes.length > 1), label, " ", value);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(label)) this.hidden.add(label);
        button.setAttribute("aria-pressed", String(!this.hidden.has(label)));
        this.rebuild();
      });
      return { indexes, button, value };
    });
    this.legend.replaceChildren(...this.entries.map((entry) => el("li", {}, entry.button)));
    this.tell(null);
  }

  private resize(): void {
    const width = this.frame.clientWidth;
    if (width === 0) return;
    if (this.plot) this.plot.setSize({ width, height: this.heightPx });
    else this.rebuild();
  }

  private rebuild(): void {
    const { spec } = this;
    const width = this.frame.clientWidth;
    this.plot?.destroy();
    this.plot = null;
    if (!spec || width === 0) return;
    const series: uPlot.Series[] = [{}];
    const data: (number | null)[][] = [spec.x];
    const bands: uPlot.Band[] = [];
    for (const curve of spec.curves) {
      const show = !this.hidden.has(keyOf(curve));
      const colour = cssColour(curve.colour);
      const plotted = (values: (number | null)[]) => (spec.yAxis.log ? values.map((value) => (value !== null && value > 0 ? value : null)) : values);
      if (curve.band) {
        const edge = { show, stroke: "transparent", points: { show: false }, spanGaps: true };
        bands.push({ series: [series.length, series.length + 1], fill: cssColour(curve.colour, 18) });
        series.push(edge, edge);
        data.push(plotted(curve.band.high), plotted(curve.band.low));
      }
      series.push({
        show,
        stroke: colour,
        width: curve.width ?? 2,
        spanGaps: true,
        ...(curve.dash ? { dash: curve.dash } : {}),
        points: { show: curve.points !== "none", size: 7, width: 1.5, stroke: colour, fill: curve.points === "hollow" ? cssColour("--panel") : colour },
      });
      data.push(plotted(curve.values));
    }
    this.plot = new uPlot(this.options(spec, width, series, bands), data as uPlot.AlignedData, this.frame);
  }

  private options(spec: Spec, width: number, series: uPlot.Series[], bands: uPlot.Band[]): uPlot.Options {
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const [quiet, rule] = [cssColour("--quiet"), cssColour("--rule")];
    const axis = (own: Axis, name: string, spacePx: number) => ({
      stroke: quiet,
      font,
      label: name,
      labelFont: font,
      labelSize: 16,
      labelGap: 2,
      gap: 4,
      ticks: { stroke: rule, size: 4 },
      grid: { stroke: rule, width: 1 },
      splits: (plot: uPlot, _axis: number, low: number, high: number) =>
        own.ticks(low, high, Math.max(2, Math.floor((spacePx === 72 ? plot.width - LEFT_PX : plot.height) / spacePx))),
      values: (_plot: uPlot, ticks: number[]) => ticks.map(own.label),
      filter: (_plot: uPlot, ticks: number[]) => ticks,
    });
    return {
      width,
      height: this.heightPx,
      padding: [10, 30, 0, 0],
      scales: {
        x: { time: false, distr: spec.xAxis.log ? 3 : 1, range: () => spec.xAxis.range },
        y: { distr: spec.yAxis.log ? 3 : 1, range: () => spec.yAxis.range },
      },
      axes: [
        { ...axis(spec.xAxis, spec.xName, 72), size: 26 },
        { ...axis(spec.yAxis, spec.yName, 34), size: LEFT_PX },
      ],
      cursor: { drag: { x: false, y: false }, points: { size: 8 }, y: false },
      legend: { show: false },
      series,
      bands,
      hooks: {
        setCursor: [(plot) => this.tell(plot.cursor.idx ?? null)],
        drawClear: [(plot) => shade(plot, spec.shaded)],
      },
    };
  }

  /** Writes the values at one position into the legend. */
  private tell(index: number | null): void {
    const { spec } = this;
    if (!spec) return;
    const at = index === null ? undefined : spec.x[index];
    this.at.textContent = at === undefined ? "\u00a0" : spec.xText(at);
    for (const { indexes, value } of this.entries) {
      const curve = indexes.length === 1 ? spec.curves[indexes[0] ?? 0] : undefined;
      const y = index === null ? undefined : curve?.values[index];
      const [low, high] = index === null ? [] : [curve?.band?.low[index], curve?.band?.high[index]];
      const range = typeof low === "number" && typeof high === "number" && high > low ? ` (${spec.yText(low)} – ${spec.yText(high)})` : "";
      value.textContent = typeof y === "number" ? spec.yText(y) + range : "";
    }
  }

  private moveTo(index: number | null): void {
    const at = index === null ? undefined : this.spec?.x[index];
    if (!this.plot) return;
    if (at === undefined) this.plot.setCursor({ left: -10, top: -10 });
    else this.plot.setCursor({ left: this.plot.valToPos(at, "x"), top: this.plot.over.clientHeight / 2 });
  }

  private step(event: KeyboardEvent): void {
    const last = (this.spec?.x.length ?? 0) - 1;
    const now = this.plot?.cursor.idx ?? null;
    const next: Record<string, number> = {
      ArrowRight: now === null ? 0 : Math.min(now + 1, last),
      ArrowLeft: now === null ? last : Math.max(now - 1, 0),
      Home: 0,
      End: last,
    };
    const to = next[event.key];
    if (to === undefined || last < 0) return;
    event.preventDefault();
    this.moveTo(to);
  }
}

const keyOf = (curve: Curve): string => curve.group ?? curve.label;

function swatch(curve: Curve | undefined, ofGroup: boolean): SVGElement {
  const line = svg("line", { x1: 0, y1: 5, x2: 22, y2: 5, "stroke-width": curve?.width ?? 2 });
  if (curve?.dash) line.setAttribute("stroke-dasharray", curve.dash.join(" "));
  const dot = curve && curve.points !== "none" ? svg("circle", { cx: 11, cy: 5, r: 3.2, "stroke-width": 1.5 }) : null;
  const colour = `var(${ofGroup || !curve ? "--quiet" : curve.colour})`;
  line.style.stroke = colour;
  if (dot) {
    dot.style.stroke = colour;
    dot.style.fill = curve?.points === "hollow" ? "var(--panel)" : colour;
  }
  return svg("svg", { class: "line", width: 22, height: 10, "aria-hidden": "true" }, line, dot);
}

function shade(plot: uPlot, range: [number, number] | undefined): void {
  if (!range) return;
  const [from, to] = range.map((x) => plot.valToPos(x, "x", true)) as [number, number];
  plot.ctx.save();
  plot.ctx.fillStyle = cssColour("--note-ground");
  plot.ctx.fillRect(from, plot.bbox.top, to - from, plot.bbox.height);
  plot.ctx.restore();
}
