// Sign-in, if the meter requires tokens: the browser exchanges a token for a cookie, and no script sees either again.

import { useEffect, useState } from "preact/hooks";

const PATH = "/api/v1/session";

export interface Standing {
  needs_token: boolean;
  role?: "view" | "capture" | "change";
}

/** What the browser may do: each role includes the previous ones. */
const MAY: Record<NonNullable<Standing["role"]>, string> = {
  view: "may look",
  capture: "may look and open cases",
  change: "may look, open cases and change hosts",
};

async function ask(method: "GET" | "POST" | "DELETE", token?: string): Promise<Standing> {
  const response = await fetch(PATH, { method, headers: token === undefined ? {} : { authorization: `Bearer ${token}` } });
  const said = (await response.json()) as Standing & { error?: string };
  if (!response.ok) throw new Error(said.error ?? `the meter answered ${response.status}`);
  return said;
}

const LOCKED = "spangap-locked";

/** Tells the page that the meter requires a token. */
export const tellLocked = () => void dispatchEvent(new Event(LOCKED));

/** Whether the meter has refused an unauthenticated request. */
export function useLocked(): boolean {
  const [locked, setLocked] = useState(false);
  useEffect(() => {
    const heard = () => setLocked(true);
    addEventListener(LOCKED, heard);
    return () => removeEventListener(LOCKED, heard);
  }, []);
  return locked;
}

export function SignIn() {
  const [token, setToken] = useState("");
  const [wrong, setWrong] = useState<string | null>(null);
  return (
    <form
      id="sign-in"
      class="panel"
      onSubmit={(event) => {
        event.preventDefault();
        // The page reloads, at the view of its address.
        ask("POST", token.trim()).then(
          () => location.reload(),
          (error: unknown) => setWrong(error instanceof Error ? error.message : String(error)),
        );
      }}
    >
      <h2>Sign in</h2>
      <label class="field">
        Token
        <input type="password" autocomplete="current-password" value={token} aria-invalid={wrong !== null} aria-describedby="sign-in-said" onInput={(event) => setToken(event.currentTarget.value)} />
      </label>
      <p id="sign-in-said" role="alert" class={wrong ? "bad" : "quiet"}>
        {wrong ?? "This meter demands a token with the role view, or a higher one, from the file that it was given with --token-file."}
      </p>
      <button type="submit" disabled={token.trim() === ""}>
        sign in
      </button>
    </form>
  );
}

/** What the meter knows about this browser; null until it has answered. */
export function useStanding(): Standing | null {
  const [standing, setStanding] = useState<Standing | null>(null);
  useEffect(() => {
    // Without an answer there is nothing to show.
    ask("GET").then(setStanding, () => {});
  }, []);
  return standing;
}

/** Who is signed in, with a way to sign out; nothing if no token is needed. */
export function SignedIn() {
  const standing = useStanding();
  if (!standing?.role) return null;
  return (
    <p id="signed-in">
      Signed in with a token for <b>{standing.role}</b>: {MAY[standing.role]}.{" "}
      <button type="button" class="plain" onClick={() => void ask("DELETE").then(() => location.reload())}>
        sign out
      </button>
    </p>
  );
}
