/** A time in the form that inputs of date and time have, in UTC or in the browser's zone. */
export function toInput(ms: number, utc: boolean): string {
  const date = new Date(utc ? ms : ms - new Date(ms).getTimezoneOffset() * 60_000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString().slice(0, 19);
}

export function fromInput(text: string, utc: boolean): number | undefined {
  const ms = Date.parse(utc ? `${text}Z` : text);
  return Number.isNaN(ms) || ms < 0 ? undefined : ms;
}
