// Reads the JSON shapes of both sides, the meter's `report/` and the page's `api.ts`, into one form.

import ts from "typescript";

export interface Field {
  /** As TypeScript would write it. */
  type: string;
  /** Whether the key may be absent. */
  optional: boolean;
}

export interface Shape {
  /** Shapes whose fields are part of this one. */
  includes: string[];
  fields: Map<string, Field>;
}

export type Shapes = Map<string, Shape>;

const RUST_TYPES: Record<string, string> = {
  u64: "number",
  u32: "number",
  i32: "number",
  f64: "number",
  String: "string",
  bool: "boolean",
  "[u64; 2]": "[number, number]",
  "(f64, u64)": "[number, number]",
  // A span in OTLP's own JSON mapping; its type is not the meter's to give.
  "serde_json::Value": "OtlpSide",
};
/** Names on both sides of what JSON holds as one string. */
const WORDS = ["Stack", "Call", "Channels", "Nodelay", "Standing", "NoteLevel", "PeerState"];

function rustType(rust: string): string {
  const known = RUST_TYPES[rust];
  if (known) return known;
  const generic = /^(Vec|Option|BTreeMap<String)(?:<|, )(.+)>$/.exec(rust);
  if (generic) {
    const inner = rustType(generic[2]!);
    if (generic[1] === "Vec") return `${inner}[]`;
    if (generic[1] === "Option") return `${inner} | null`;
    return `Record<string, ${inner}>`;
  }
  // Enums whose variants have names: in JSON they are these.
  if (rust === "Cause" || rust === "Side") return "string";
  if (/^[A-Z]\w+$/.test(rust)) return rust;
  throw new Error(`report.rs uses the type ${rust}, which this test does not know`);
}

/** The text of one public struct of Rust source. */
export function structOf(source: string, name: string): string {
  const found = new RegExp(`^pub struct ${name} \\{\\n[^]*?^\\}`, "m").exec(source);
  if (!found) throw new Error(`no struct ${name}`);
  return `${found[0]}\n`;
}

/** The public structs of Rust source that uses serde's derive. */
export function rustShapes(source: string): Shapes {
  const shapes: Shapes = new Map();
  for (const [, name, body] of source.matchAll(/^pub struct (\w+) \{\n([^]*?)^\}/gm)) {
    const shape: Shape = { includes: [], fields: new Map() };
    let attribute = "";
    for (const line of body!.split("\n").map((text) => text.trim())) {
      if (line === "" || line.startsWith("//")) continue;
      const serde = /^#\[serde\((.*)\)\]$/.exec(line);
      if (serde) {
        attribute = serde[1]!;
        continue;
      }
      const field = /^pub (\w+): (.+),$/.exec(line);
      if (!field) throw new Error(`report.rs, ${name}: cannot read the line ${line}`);
      const [, key, rust] = field as unknown as [string, string, string];
      if (attribute === "flatten") {
        shape.includes.push(rust);
      } else if (attribute === 'skip_serializing_if = "Option::is_none", default') {
        shape.fields.set(key, { type: rustType(/^Option<(.+)>$/.exec(rust)![1]!), optional: true });
      } else if (attribute === 'skip_serializing_if = "Vec::is_empty", default') {
        shape.fields.set(key, { type: rustType(rust), optional: true });
      } else if (attribute === "" || attribute === "default" || attribute.startsWith("default = ")) {
        // What older documents lack is still always written.
        shape.fields.set(key, { type: rustType(rust), optional: false });
      } else {
        throw new Error(`report.rs, ${name}.${key}: this test does not know what serde(${attribute}) does`);
      }
      attribute = "";
    }
    shapes.set(name!, shape);
  }
  const declared = source.match(/^pub (struct|enum|type) /gm)?.length ?? 0;
  if (declared !== shapes.size) throw new Error(`report.rs declares ${declared} types, ${shapes.size} could be read`);
  if (/^#\[serde/m.test(source)) throw new Error("report.rs has a serde attribute on a type, which this test does not know");
  return shapes;
}

/** The exported interfaces of TypeScript source. */
export function typescriptShapes(source: string): Shapes {
  const file = ts.createSourceFile("api.ts", source, ts.ScriptTarget.Latest, true);
  const shapes: Shapes = new Map();
  file.forEachChild((node) => {
    if (!ts.isInterfaceDeclaration(node)) return;
    const includes = (node.heritageClauses ?? []).flatMap((clause) => clause.types.map((type) => type.getText(file)));
    const fields = new Map<string, Field>();
    for (const member of node.members) {
      if (!ts.isPropertySignature(member) || !member.type) throw new Error(`api.ts, ${node.name.text}: not a plain field: ${member.getText(file)}`);
      fields.set(member.name.getText(file), { type: member.type.getText(file), optional: member.questionToken !== undefined });
    }
    shapes.set(node.name.text, { includes, fields });
  });
  return shapes;
}

/** Every difference between two sets of shapes, in words; empty when they are one to one. */
export function differences(rust: Shapes, typescript: Shapes): string[] {
  const found: string[] = [];
  const text = (field: Field | undefined) => (field ? `${field.optional ? "absent or " : ""}${field.type}` : "missing");
  for (const name of new Set([...rust.keys(), ...typescript.keys()])) {
    const [r, t] = [rust.get(name), typescript.get(name)];
    if (!r || !t) {
      found.push(`${name} is only in ${r ? "report.rs" : "api.ts"}`);
      continue;
    }
    if (r.includes.join() !== t.includes.join()) found.push(`${name} includes ${r.includes.join()} in report.rs, ${t.includes.join()} in api.ts`);
    for (const key of new Set([...r.fields.keys(), ...t.fields.keys()])) {
      const [rf, tf] = [text(r.fields.get(key)), text(t.fields.get(key))];
      if (rf !== tf) found.push(`${name}.${key} is ${rf} in report.rs, ${tf} in api.ts`);
    }
  }
  return found;
}

function allFields(name: string, shapes: Shapes): Map<string, Field> {
  const shape = shapes.get(name);
  if (!shape) throw new Error(`no shape is named ${name}`);
  return new Map([...shape.includes.flatMap((included) => [...allFields(included, shapes)]), ...shape.fields]);
}

/** Where a JSON value is not of a type, as paths; empty when it is. */
export function violations(value: unknown, type: string, shapes: Shapes, path = "$"): string[] {
  if (type.endsWith(" | null")) return value === null ? [] : violations(value, type.slice(0, -7), shapes, path);
  if (WORDS.includes(type)) return violations(value, "string", shapes, path);
  if (["number", "string", "boolean"].includes(type)) return typeof value === type ? [] : [`${path}: ${JSON.stringify(value)} is no ${type}`];
  if (type === "[number, number]") {
    return Array.isArray(value) && value.length === 2 ? value.flatMap((one, i) => violations(one, "number", shapes, `${path}[${i}]`)) : [`${path}: no pair of numbers`];
  }
  if (type.endsWith("[]")) {
    return Array.isArray(value) ? value.flatMap((one, i) => violations(one, type.slice(0, -2), shapes, `${path}[${i}]`)) : [`${path}: no list`];
  }
  if (typeof value !== "object" || value === null) return [`${path}: ${JSON.stringify(value)} is no ${type}`];
  const record = /^Record<string, (.+)>$/.exec(type);
  if (record) return Object.entries(value).flatMap(([key, one]) => violations(one, record[1]!, shapes, `${path}.${key}`));
  if (type === "OtlpSide") return "span" in value && "resource" in value ? [] : [`${path}: no resource and span`];
  const fields = allFields(type, shapes);
  const object = value as Record<string, unknown>;
  return [
    ...Object.keys(object).flatMap((key) => (fields.has(key) ? [] : [`${path}.${key} is not in api.ts`])),
    ...[...fields].flatMap(([key, field]) => {
      if (!(key in object)) return field.optional ? [] : [`${path}.${key} is missing`];
      return violations(object[key], field.type, shapes, `${path}.${key}`);
    }),
  ];
}
