// Whether the meter still serves the page that is open here. After an upgrade, a page left open would ask the new meter in the old
// one's words and misread its answers.

/** The tag of the page that the meter serves; null when it does not say. */
async function tagServed(): Promise<string | null> {
  try {
    const response = await fetch(location.pathname, { method: "HEAD", cache: "no-store" });
    return response.ok ? response.headers.get("etag") : null;
  } catch {
    return null;
  }
}

let opened: string | null = null;

/** Whether the meter serves another page than the one that was opened. */
export async function isReplaced(): Promise<boolean> {
  const served = await tagServed();
  opened ??= served;
  return served !== null && served !== opened;
}
