// Parts shared by several reports.

import type { ComponentChildren } from "preact";
import { Code, Panel } from "../parts";
import type { TablePage } from "./dissect_api";

export function Report({ verb, of, class: name = "", children }: { verb: string; of: string; class?: string; children: ComponentChildren }) {
  return (
    <>
      <header id="top">
        <h1>spangap {verb}</h1>
        <p class="tagline facts">{of}</p>
      </header>
      <main class={`report ${name}`}>{children}</main>
    </>
  );
}

/** A table whose cells are already text. */
export function Table({ table, label }: { table: TablePage; label: string }) {
  const isFigure = (at: number) => (table.figures.includes(at) ? "number" : "");
  return (
    <>
      <div class="scroller" tabIndex={0} role="region" aria-label={label}>
        <table>
          <thead>
            <tr>
              {table.head.map((head, at) => (
                <th key={at} scope="col" class={isFigure(at)}>
                  {head}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {table.rows.map((row, y) => (
              <tr key={y}>
                {row.map((cell, at) => (
                  <td key={at} class={isFigure(at)}>
                    {cell}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {table.more && <p class="remark">{table.more}</p>}
    </>
  );
}

/** The lead stands out; text in backticks becomes code. */
export function Conclusions({ of }: { of: string[] }) {
  return (
    <>
      {of.map((words, at) => (
        <p key={at} class={at === 0 ? "lead" : "said"}>
          <Code text={words} />
        </p>
      ))}
    </>
  );
}

/** What the figures cannot show, and what they cost. */
export function Remarks({ of }: { of: string[] }) {
  if (of.length === 0) return null;
  return (
    <Panel title="What these figures cannot tell, and their cost">
      <ul class="plain-list">
        {of.map((words, at) => (
          <li key={at}>
            <Code text={words} />
          </li>
        ))}
      </ul>
    </Panel>
  );
}
