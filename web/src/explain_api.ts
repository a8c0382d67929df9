// Shapes of what sets slow calls apart, as in the meter's `explain`; a test compares the two.

export interface Explanation {
  client: string;
  server: string;
  method?: string;
  calls: number;
  sampled: number;
  without_spans: number;
  typical_gap_ns: number;
  excess_ns: number;
  attributes: number;
  tested: number;
  false_discovery_rate: number;
  differs: Difference[];
  rises_with: Rise[];
}

export interface Difference {
  attribute: string;
  value: string;
  share_of_excess: Share;
  share_of_calls: number;
  sampled: number;
  median_gap_ns: number | null;
  median_gap_without_ns: number | null;
  probability: number;
  same_calls?: Named[];
  follows?: Named;
}

export interface Named {
  attribute: string;
  value: string;
}

export interface Share {
  low: number;
  mid: number;
  high: number;
}

export interface Rise {
  attribute: string;
  correlation: number;
  probability: number;
  quarters: Quarter[];
}

export interface Quarter {
  from: number;
  to: number;
  calls: number;
  median_gap_ns: number;
}
