// The document of the page of `host thieves`, as crates/host/src/report/thieves/page.rs writes it; a test compares the two.

export interface ThievesPage {
  title: string;
  facts: string;
  conclusions: string[];
  did: DidPage[];
  takers: TakerPage[];
  more_takers?: string;
  windows: WindowPage[];
  notes: string[];
  cost?: string;
}

export interface DidPage {
  doing: string;
  words: string;
  time: string;
  share: number;
  of_all: string;
  of_wanted: string;
}

export interface TakerPage {
  name: string;
  blamed_for?: string;
  share: number;
  of_wanted: string;
  time: string;
  count: string;
  longest: string;
  waited: string;
  ran: string;
  cpus: string;
}

export interface WindowPage {
  words: string;
  longest: string;
  duration_ns: number;
  pieces: PiecePage[];
}

export interface PiecePage {
  doing: string;
  from_ns: number;
  ns: number;
  who: string;
}
