// Folded stacks as a tree, and the positions of its frames in a flame graph.

export interface Frame {
  name: string;
  samples: number;
  /** From the root. */
  path: string[];
  children: Frame[];
}

/** Parses `root;...;leaf count`, one stack per line. Frames are sorted by name, as usual in flame graphs. */
export function flameTree(folded: string[]): Frame {
  const root: Frame = { name: "all", samples: 0, path: [], children: [] };
  for (const line of folded) {
    const cut = line.lastIndexOf(" ");
    const samples = Number(line.slice(cut + 1));
    if (cut <= 0 || !Number.isFinite(samples)) continue;
    root.samples += samples;
    let at = root;
    for (const name of line.slice(0, cut).split(";")) {
      let next = at.children.find((child) => child.name === name);
      if (!next) {
        next = { name, samples: 0, path: [...at.path, name], children: [] };
        at.children.push(next);
      }
      next.samples += samples;
      at = next;
    }
  }
  const sort = (frame: Frame) => {
    frame.children.sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0));
    frame.children.forEach(sort);
  };
  sort(root);
  return root;
}

/** The frame at a path; the root if there is none. */
export function frameAt(root: Frame, path: string[]): Frame {
  let at = root;
  for (const name of path) {
    const next = at.children.find((child) => child.name === name);
    if (!next) return root;
    at = next;
  }
  return at;
}

export interface Placed {
  frame: Frame;
  /** Left edge and width, as shares of the graph's width. */
  x: number;
  width: number;
  /** Rows above the bottom. */
  row: number;
  /** Whether it is an ancestor of the zoomed frame. */
  below: boolean;
}

/** Narrower frames are omitted: they would be invisible. */
const NARROWEST = 0.0005;

/** Positions of the frames with one zoomed in: its ancestors at full width below it, what it called above. */
export function place(root: Frame, zoomed: Frame): Placed[] {
  const placed: Placed[] = [];
  let at = root;
  for (const name of ["", ...zoomed.path]) {
    if (name !== "") at = at.children.find((child) => child.name === name) ?? at;
    placed.push({ frame: at, x: 0, width: 1, row: at.path.length, below: at.path.length < zoomed.path.length });
  }
  const spread = (frame: Frame, x: number, width: number) => {
    let left = x;
    for (const child of frame.children) {
      const wide = (width * child.samples) / Math.max(1, frame.samples);
      if (wide >= NARROWEST) {
        placed.push({ frame: child, x: left, width: wide, row: child.path.length, below: false });
        spread(child, left, wide);
      }
      left += wide;
    }
  };
  spread(zoomed, 0, 1);
  return placed;
}

/** Samples in frames whose names contain these words; each counts once, however often it occurs in a stack. */
export function found(frame: Frame, words: string): number {
  if (words === "") return 0;
  if (frame.path.length > 0 && frame.name.toLowerCase().includes(words.toLowerCase())) return frame.samples;
  return frame.children.reduce((sum, child) => sum + found(child, words), 0);
}
