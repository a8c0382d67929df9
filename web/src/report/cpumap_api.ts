// The document of the page of `isolate show`, as crates/isolate/src/report/show/page.rs writes it; a test compares the two.

export interface ShowPage {
  title: string;
  plans: string[];
  labels: string[];
  packages: PackagePage[];
  cpus: CpuPage[];
  lists: ListPage[];
}

export interface PackagePage {
  name: string;
  nodes: NodePage[];
}

export interface NodePage {
  name?: string;
  caches: CachePage[];
}

export interface CachePage {
  name?: string;
  cores: number[];
}

export interface CpuPage {
  cpu: number;
  softirq_share: number | null;
  tasks_share: number | null;
  net: boolean;
  planned: boolean;
  apart: boolean;
  label: string;
  told: string[];
  row: string[];
}

export interface ListPage {
  title: string;
  lines: string[];
}
