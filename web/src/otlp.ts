// One side of a call in OTLP's JSON mapping: ids in hex, 64-bit numbers as decimal strings, default values omitted.

export interface AnyValue {
  stringValue?: string;
  boolValue?: boolean;
  intValue?: string | number;
  doubleValue?: number | string;
  bytesValue?: string;
  arrayValue?: { values?: AnyValue[] };
  kvlistValue?: { values?: KeyValue[] };
}

export interface KeyValue {
  key: string;
  value?: AnyValue | null;
}

export interface OtlpSpan {
  traceId?: string;
  spanId?: string;
  parentSpanId?: string;
  name?: string;
  kind?: number;
  startTimeUnixNano?: string | number;
  endTimeUnixNano?: string | number;
  attributes?: KeyValue[];
  events?: { timeUnixNano?: string | number; name?: string; attributes?: KeyValue[] }[];
  status?: { code?: number; message?: string } | null;
}

/** A span with its resource. */
export interface OtlpSide {
  resource?: { attributes?: KeyValue[] } | null;
  span: OtlpSpan;
}

/** All stored spans of a trace. */
export interface KeptTrace {
  resourceSpans: { resource?: OtlpSide["resource"]; scopeSpans?: { spans?: OtlpSpan[] }[] }[];
  /** Why spans may be missing. */
  incomplete?: string[];
}

/** A value as one line of text. */
export function valueText(value: AnyValue | null | undefined): string {
  if (!value) return "";
  if (value.stringValue !== undefined) return value.stringValue;
  if (value.boolValue !== undefined) return String(value.boolValue);
  if (value.intValue !== undefined) return String(value.intValue);
  if (value.doubleValue !== undefined) return String(value.doubleValue);
  if (value.bytesValue !== undefined) return `base64 ${value.bytesValue}`;
  if (value.arrayValue) return `[${(value.arrayValue.values ?? []).map(valueText).join(", ")}]`;
  if (value.kvlistValue) {
    return `{${(value.kvlistValue.values ?? []).map((kv) => `${kv.key}: ${valueText(kv.value)}`).join(", ")}}`;
  }
  return "";
}

/** Attributes by key; of a repeated key, the last value counts. */
export function attributes(list: KeyValue[] | undefined): Map<string, string> {
  return new Map((list ?? []).map((kv) => [kv.key, valueText(kv.value)]));
}
