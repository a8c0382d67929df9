// The heatmap's colour scale: one path through the hues from near the plot's background to far from it, one for each theme.

import { isDark } from "./theme";

type Rgb = [number, number, number];

const LIGHT: Rgb[] = [
  [216, 232, 245],
  [164, 205, 231],
  [104, 166, 213],
  [56, 118, 190],
  [37, 70, 150],
  [24, 22, 80],
];
const DARK: Rgb[] = [
  [38, 48, 92],
  [56, 82, 156],
  [42, 130, 168],
  [56, 178, 150],
  [150, 214, 104],
  [252, 244, 168],
];

/** Colour of a fraction from 0 to 1. */
export function ramp(stops: readonly Rgb[], place: number): string {
  const at = Math.min(Math.max(place, 0), 1) * (stops.length - 1);
  const i = Math.min(Math.floor(at), stops.length - 2);
  const from = stops[i] ?? [0, 0, 0];
  const to = stops[i + 1] ?? from;
  const mix = from.map((channel, k) => Math.round(channel + ((to[k] ?? channel) - channel) * (at - i)));
  return `rgb(${mix.join(" ")})`;
}

/** Colour of a count, on a logarithmic scale: a few slow calls stay visible next to thousands of fast ones. */
export function countColour(most: number): (n: number) => string {
  const stops = isDark() ? DARK : LIGHT;
  const full = Math.log1p(most);
  const none = Math.log1p(1);
  return (n) => ramp(stops, full > none ? (Math.log1p(n) - none) / (full - none) : 1);
}
