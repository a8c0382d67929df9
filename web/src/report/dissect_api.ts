// The data for the page of `spangap dissect --html`, as crates/wire/src/report/page.rs writes it.

import type { WholeCall } from "../whole_api";

export interface DissectPage {
  title: string;
  kicker: string;
  headline: string;
  lead?: string;
  also: AlsoPage[];
  calls: CallPage[];
  table?: TablePage;
  sums: SumsPage[];
  connections?: TablePage;
  notes: string[];
  limits: string[];
  command?: string;
}

export interface TablePage {
  title: string;
  head: string[];
  figures: number[];
  rows: string[][];
  more?: string;
}

export interface CallPage {
  title: string;
  facts: string;
  by_shape?: string;
  legs: LegPage[];
  hops?: HopsPage;
  hosts: HostPage[];
  times?: string;
  /** The packet of the ladder that it precedes, and the words. */
  pauses: [number, string][];
  findings: FindingPage[];
  doubts: string[];
  report: DissectedCall;
}

/** A call as in `dissect --json`, without the tracks and the axis that a case adds. */
export type DissectedCall = Omit<WholeCall, "axis" | "tracks">;

export interface SumsPage {
  title: string;
  facts: string;
  legs: LegSumPage[];
  causes: [string, string, string, string][];
}

export interface AlsoPage {
  words: string;
  is_quiet: boolean;
}

export interface LegPage {
  words: string;
  time: string;
  share: string;
}

export interface HopsPage {
  way: string;
  rows: [string, string, string][];
}

export interface HostPage {
  title: string;
  parts: string[];
}

export interface FindingPage {
  title: string;
  is_shown: boolean;
  missing?: string;
  note: string;
  /** File, packet, time, what it shows. */
  evidence: [string, string, string, string][];
}

export interface LegSumPage {
  leg: string;
  words: string;
  time: string;
  percent: string;
  share: number;
}
