// The shapes of `spangap lab grade --json`, as crates/lab/src/grade/ writes them.

export interface GradeReport extends Setting, Score {
  runs: Counts;
  rows: Row[];
}

export interface Setting {
  judge: string;
  blind: boolean;
  seed: number;
  repeats?: number;
  interrupted: boolean;
}

export interface Counts {
  planned: number;
  graded: number;
  judged: number;
  did_not_act: number;
  unavailable: number;
  failed: number;
  judge_failed: number;
  judge_timed_out: number;
}

export interface Score {
  right: GradeShare;
  unknown: GradeShare;
  legs: GradeShare;
  false_alarms: GradeShare;
  culprits: CulpritScore[];
  matrix: Matrix;
}

/** With its 95 % interval. */
export interface GradeShare {
  count: number;
  of: number;
  share: number | null;
  low: number;
  high: number;
}

export interface CulpritScore {
  culprit: string;
  recall: GradeShare;
  precision: GradeShare;
  unknown: number;
}

export interface Matrix {
  rows: string[];
  columns: string[];
  cells: Cell[][];
}

export interface Cell {
  runs: number;
  right: number;
}

export interface Row {
  run: string;
  scenario: string;
  near_miss: boolean;
  repeat?: number;
  seed: number;
  outcome: string;
  folder?: string;
  judged_as?: string;
  truth?: string;
  also_right?: string[];
  looks_like?: string;
  leg?: string;
  verdict?: string;
  verdict_leg?: string;
  why?: string;
  right?: boolean;
  leg_right?: boolean;
  false_alarm?: boolean;
  error?: string;
  run_s?: number;
  judge_s?: number;
}
