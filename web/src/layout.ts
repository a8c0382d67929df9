// Positions of the services on a map: callers left of those they call, with as few crossings as two sweeps achieve.

export interface Edge {
  from: string;
  to: string;
}

export interface Spot {
  layer: number;
  /** Position within the layer, from the top. */
  row: number;
}

const MOST_LAYERS = 6;

/** A position for each service. Of the edges in a cycle, the last one found does not count for the layers. */
export function place(edges: Edge[]): Map<string, Spot> {
  const names = [...new Set(edges.flatMap((edge) => [edge.from, edge.to]))];
  const calls = new Map<string, string[]>(names.map((name) => [name, []]));
  const callers = new Map<string, string[]>(names.map((name) => [name, []]));
  const reaches = (from: string, to: string): boolean => {
    const seen = new Set([from]);
    const next = [from];
    for (let at = next.pop(); at !== undefined; at = next.pop()) {
      if (at === to) return true;
      for (const one of calls.get(at) ?? []) {
        if (!seen.has(one)) {
          seen.add(one);
          next.push(one);
        }
      }
    }
    return false;
  };
  for (const { from, to } of edges) {
    if (from === to || reaches(to, from)) continue;
    calls.get(from)?.push(to);
    callers.get(to)?.push(from);
  }
  const layers = new Map<string, number>();
  const layerOf = (name: string): number => {
    const known = layers.get(name);
    if (known !== undefined) return known;
    const layer = (callers.get(name) ?? []).reduce((most, caller) => Math.max(most, layerOf(caller) + 1), 0);
    layers.set(name, layer);
    return layer;
  };
  names.forEach(layerOf);
  if ([...layers.values()].some((layer) => layer >= MOST_LAYERS)) {
    // A dense fleet would become a long chain: use the fewest steps from where calls begin instead.
    layers.clear();
    let next = names.filter((name) => callers.get(name)?.length === 0);
    for (let layer = 0; next.length > 0; layer++) {
      for (const name of next) layers.set(name, layer);
      next = [...new Set(next.flatMap((name) => calls.get(name) ?? []))].filter((name) => !layers.has(name));
    }
  }
  const columns: string[][] = [];
  for (const name of names) (columns[layers.get(name) ?? 0] ??= []).push(name);
  const rows = new Map<string, number>();
  const number = () => columns.forEach((column) => column.forEach((name, row) => rows.set(name, row / Math.max(1, column.length - 1))));
  number();
  for (const neighbours of [callers, calls, callers]) {
    for (const column of columns) {
      const middle = (name: string) => {
        const near = neighbours.get(name) ?? [];
        return near.length === 0 ? (rows.get(name) ?? 0) : near.reduce((sum, one) => sum + (rows.get(one) ?? 0), 0) / near.length;
      };
      const middles = new Map(column.map((name) => [name, middle(name)]));
      column.sort((a, b) => (middles.get(a) ?? 0) - (middles.get(b) ?? 0));
    }
    number();
  }
  return new Map(columns.flatMap((column, layer) => column.map((name, row): [string, Spot] => [name, { layer, row }])));
}
