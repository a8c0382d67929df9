// The document of the page of `host stacks`, as crates/host/src/report/flame/page.rs writes it; a test compares the two.

import type { TablePage } from "./dissect_api";

export interface StacksPage {
  title: string;
  facts: string;
  shares: string;
  per_cpu: TablePage;
  groups: GroupPage[];
  more_groups?: string;
  folded: string[];
  samples: number;
  notes: string[];
  cost: string;
}

export interface GroupPage {
  share: string;
  words: string;
  ways: WayPage[];
}

export interface WayPage {
  share: string;
  words: string;
}
