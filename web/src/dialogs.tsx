// Dialogs: the keyboard shortcuts, and this browser's settings.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { glossary } from "./glossary";
import { Code } from "./parts";
import { EXAMPLE, ownTemplate, setTemplate, template, wrongWith } from "./trace_link";

export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    // The browser traps the focus inside, and restores it afterwards.
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} aria-label={title} onClose={onClose} onClick={(event) => event.target === dialog.current && onClose()}>
      <div class="dialog">
        <div class="panel-head">
          <h2>{title}</h2>
          <button type="button" class="plain" onClick={onClose}>
            close
          </button>
        </div>
        {children}
      </div>
    </dialog>
  );
}

const KEYS: [string, string][] = [
  ["/", "search pairs"],
  ["j  k  ↓  ↑", "next and previous row"],
  ["Enter", "open what is focused; in a heatmap, the calls of a cell"],
  ["Esc", "one step back"],
  ["← → ↑ ↓", "from cell to cell of a heatmap"],
  ["f  c  h", "fleet, cases, hosts"],
  ["m", "table or map"],
  ["t", "dark, light, or as the system has it"],
  ["?", "this list"],
];

/** Where each question is answered. */
const WHERE: [string, string][] = [
  ["which pair costs most", "Fleet: the first row; the column Beyond usual for what became slower"],
  ["since when", "its case, or the bars above the table"],
  ["on which node", "its case, else the pair: What sets slow calls apart"],
  ["in which leg", "its case; of all calls, the pair: Where a call's time goes"],
  ["why, and what to do", "its case: Why, and Do"],
  ["did it help", "its case: Experiments, and Did it help; else the pair with compare with"],
];

export function KeysDialog() {
  return (
    <>
      <h3>Where to find what</h3>
      <table class="wrapped">
        <tbody>
          {WHERE.map(([question, words]) => (
            <tr key={question}>
              <th scope="row">{question}</th>
              <td>{words}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <h3>Keys</h3>
      <Keys />
      <h3 id="terms">What our words mean</h3>
      <Terms />
    </>
  );
}

/** The terms of docs/glossary.md. */
function Terms() {
  return (
    <>
      {glossary().map(({ title, terms }) => (
        <details key={title} class="terms">
          <summary>{title}</summary>
          <dl>
            {terms.map(({ names, meaning }) => (
              <div key={names.join()}>
                <dt>{names.join(", ")}</dt>
                <dd>
                  <Code text={meaning} />
                </dd>
              </div>
            ))}
          </dl>
        </details>
      ))}
    </>
  );
}

function Keys() {
  return (
    <table class="wrapped">
      <tbody>
        {KEYS.map(([key, words]) => (
          <tr key={key}>
            <th scope="row">
              <kbd>{key}</kbd>
            </th>
            <td>{words}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function SettingsDialog({ onDone }: { onDone: () => void }) {
  const [text, setText] = useState(ownTemplate());
  const wrong = wrongWith(text.trim());
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (wrong) return;
        setTemplate(text.trim());
        onDone();
      }}
    >
      <label class="field">
        Address of a trace in your trace UI
        <input type="url" value={text} placeholder={template() || EXAMPLE} aria-invalid={wrong !== null} aria-describedby="template-said" onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      <p id="template-said" class={wrong ? "bad" : "quiet"}>
        {wrong ?? "{trace_id} and {span_id} are replaced. Kept in this browser alone; empty for what the meter was started with (--trace-url)."}
      </p>
      <button type="submit" disabled={wrong !== null}>
        save
      </button>
    </form>
  );
}
