// The page that `--html` writes: reads the document that stands in it, and draws it with the parts of the meter's page.

import { render } from "preact";
import { byId } from "../dom";
import { DissectReport } from "./dissect";
import type { DissectPage } from "./dissect_api";
import { ShowReport } from "./cpumap";
import type { ShowPage } from "./cpumap_api";
import { GapsReport, type GapsDocument } from "./gaps";
import { GradePage, type GradeDocument } from "./grade";
import { markScrollers } from "../scrollers";
import { HuntReport, type HuntDocument } from "./hunt";
import { StacksReport } from "./stacks";
import type { StacksPage } from "./stacks_api";
import { ThievesReport } from "./thieves";
import type { ThievesPage } from "./thieves_api";

type Document =
  | ({ kind: "hunt" } & HuntDocument)
  | ({ kind: "gaps" } & GapsDocument)
  | ({ kind: "grade" } & GradeDocument)
  | { kind: "dissect"; report: DissectPage }
  | { kind: "thieves"; report: ThievesPage }
  | { kind: "stacks"; report: StacksPage }
  | { kind: "isolate_show"; report: ShowPage };

function Drawn({ held }: { held: Document }) {
  switch (held.kind) {
    case "hunt":
      return <HuntReport {...held} />;
    case "dissect":
      return <DissectReport report={held.report} />;
    case "gaps":
      return <GapsReport {...held} />;
    case "grade":
      return <GradePage {...held} />;
    case "thieves":
      return <ThievesReport report={held.report} />;
    case "stacks":
      return <StacksReport report={held.report} />;
    case "isolate_show":
      return <ShowReport report={held.report} />;
    default:
      throw new Error("it is of a kind that this page does not know");
  }
}

const app = byId("app");
markScrollers(app);
try {
  render(<Drawn held={JSON.parse(byId("data").textContent ?? "") as Document} />, app);
} catch (error) {
  console.error(error);
  const words = document.createElement("p");
  words.setAttribute("role", "alert");
  words.append(`This page holds no report that can be drawn: ${error instanceof Error ? error.message : String(error)}`);
  app.replaceChildren(words);
}
