// The project's own terms, from the text of docs/glossary.md: what a reader of the page meets, section by section.

import text from "../../docs/glossary.md";

export interface Term {
  names: string[];
  meaning: string;
}

export interface Section {
  title: string;
  terms: Term[];
}

/** Sections whose words the page uses. */
const SHOWN = ["Spans and gaps", "Cases", "Packets and calls", "Evidence and verdicts", "Hosts", "Changes and their undo"];

/** Without links: the text alone. */
const plain = (markdown: string) => markdown.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, "$1").replaceAll(/\*([^*]+)\*/g, "$1").trim();

/** Rows of the tables below each heading. */
export function glossary(markdown: string = text): Section[] {
  return markdown.split(/^## /m).slice(1).flatMap((part) => {
    const [title = "", ...lines] = part.split("\n");
    const terms = lines.flatMap((line): Term[] => {
      const [, cell, meaning] = /^\| (.*?\*\*.*?) \| (.*) \|$/.exec(line) ?? [];
      if (cell === undefined || meaning === undefined) return [];
      return [{ names: [...cell.matchAll(/\*\*([^*]+)\*\*/g)].map((match) => match[1] ?? ""), meaning: plain(meaning) }];
    });
    return SHOWN.includes(title.trim()) ? [{ title: title.trim(), terms }] : [];
  });
}
